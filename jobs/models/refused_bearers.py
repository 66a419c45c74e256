"""How often bearers were refused lately, so that all web processes count together."""

from django.db import models

from jobs.engine.ddl import SqlNow


class RefusedBearers(models.Model):
    """One slot of many; the clients' addresses are spread over them, and none is stored.

    There are never more rows than slots, and the table is unlogged: what a crash takes away is a minute of counting.
    """

    slot = models.IntegerField(primary_key=True)
    since = models.DateTimeField(db_default=SqlNow())
    refusals = models.IntegerField(db_default=1)

    class Meta:
        db_table = "refused_bearers"
        db_table_comment = "How often bearers were refused lately, by a hash of the client's address."
        verbose_name = "refused bearers"
