"""Notices: which events people are told of, over which channel, and the outbox that tells them."""

import pghistory
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.engine.ddl import SqlNow
from jobs.engine.trail import never_emptied


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(
        condition=pghistory.AnyChange("name", "address", "enabled", "digest_over", "digest_seconds"),
    ),
    # A sealed secret in the history would outlive its replacement.
    fields=["id", "name", "transport", "address", "enabled", "digest_over", "digest_seconds"],
    append_only=True,
    model_name="NoticeChannelEvent",
    meta={"db_table": "notice_channel_events", "triggers": [never_emptied()]},
)
class NoticeChannel(models.Model):
    """A way to tell people. Switched off, never deleted: what it carried stays explained."""

    class Transport(models.TextChoices):
        EMAIL = "email", _("e-mail")
        WEBHOOK = "webhook", _("webhook")
        APPRISE = "apprise", _("chat service (Apprise)")

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"), unique=True)
    transport = models.TextField(_("transport"), choices=Transport)
    address = models.TextField(_("address"))  # recipients, the webhook's URL, or only the service of an Apprise URL
    secret = models.TextField(null=True, editable=False)  # sealed: the webhook's signing key, or the Apprise URL
    enabled = models.BooleanField(_("enabled"), db_default=True)
    digest_over = models.IntegerField(_("messages in a window"), db_default=5)
    digest_seconds = models.IntegerField(_("window (seconds)"), db_default=300)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "notice_channels"
        db_table_comment = "Ways to tell people of events; secrets are sealed with a key of the installation."
        verbose_name = _("notice channel")
        verbose_name_plural = _("notice channels")
        ordering = ["name"]
        permissions = [("test_noticechannel", "Can send test notices")]
        constraints = [
            # A transport that no code knows would keep its notices waiting for ever.
            models.CheckConstraint(
                name="notice_channels_transport_known", condition=Q(transport__in=["email", "webhook", "apprise"])
            ),
            # Without a key a receiver cannot tell us from anybody else.
            models.CheckConstraint(
                name="notice_channels_has_secret", condition=Q(transport="email") | Q(secret__isnull=False)
            ),
            models.CheckConstraint(
                name="notice_channels_digest_bounds",
                condition=Q(digest_over__range=(1, 1000), digest_seconds__range=(10, 86400)),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Event(models.TextChoices):
    """What a notice is about. Rules listen for all but the last two."""

    FAILED = "failed", _("work failed, or its verdict is fail")
    RISK = "risk", _("verdict risk, or a partial backup")
    RECOVERED = "recovered", _("good again")
    AGENT_SILENT = "agent_silent", _("agent silent")
    AGENT_CLONED = "agent_cloned", _("agent cloned")
    TOKEN_EXPIRING = "token_expiring", _("token about to expire")
    DUTY_FAILING = "duty_failing", _("maintenance failing")
    SCHEDULE_MISSED = "schedule_missed", _("schedule missed")
    BACKUP_OVERDUE = "backup_overdue", _("backup overdue")
    BACKUP_RUN_BAD = "backup_run_bad", _("backup run not whole")
    REPOSITORY_DAMAGED = "repository_damaged", _("backup repository damaged")
    DRILL_FAILED = "drill_failed", _("restore drill failed")
    DIGEST = "digest", _("digest")
    TEST = "test", _("test")


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    append_only=True,
    model_name="NoticeRuleEvent",
    meta={"db_table": "notice_rule_events", "triggers": [never_emptied()]},
)
class NoticeRule(models.Model):
    """Which events go over a channel; an empty text matches everything."""

    id = models.UUIDField(primary_key=True, db_default=RandomUUID(), editable=False)
    name = models.TextField(_("name"), unique=True)
    channel = models.ForeignKey(
        NoticeChannel, verbose_name=_("channel"), on_delete=models.PROTECT, related_name="rules"
    )
    listens_to = ArrayField(models.TextField(choices=Event.choices[:-2]), verbose_name=_("listens to"))
    kind = models.TextField(_("kind"), blank=True, db_default="")
    agent = models.TextField(_("agent"), blank=True, db_default="")
    schedule = models.TextField(_("schedule"), blank=True, db_default="")
    label = models.TextField(_("label"), blank=True, db_default="")  # a key, or key=value
    enabled = models.BooleanField(_("enabled"), db_default=True)
    created_at = models.DateTimeField(_("created"), db_default=SqlNow(), editable=False)

    class Meta:
        db_table = "notice_rules"
        db_table_comment = "Which events go over which notice channel."
        verbose_name = _("notice rule")
        verbose_name_plural = _("notice rules")
        ordering = ["name"]
        constraints = [
            # A rule for nothing looks like protection and is none.
            models.CheckConstraint(name="notice_rules_listens", condition=~Q(listens_to=[])),
            models.CheckConstraint(
                name="notice_rules_events_known",
                condition=Q(listens_to__contained_by=[
                    "failed", "risk", "recovered", "agent_silent", "agent_cloned", "token_expiring", "duty_failing",
                    "schedule_missed",
                    "backup_overdue",
                    "backup_run_bad",
                    "repository_damaged",
                    "drill_failed",
                ]),
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        return self.name


class NoticeState(models.Model):
    """What a rule was told is wrong and is not good again: the reason why repetitions are not told."""

    id = models.BigAutoField(primary_key=True)
    rule = models.ForeignKey(NoticeRule, on_delete=models.CASCADE, related_name="states")
    subject = models.TextField()  # a JSON list that names one thing, so that no text can imitate another's
    event = models.TextField()
    since = models.DateTimeField(db_default=SqlNow())

    class Meta:
        db_table = "notice_states"
        db_table_comment = "What each notice rule was told is wrong; a row goes when it is good again."
        constraints = [models.UniqueConstraint(name="notice_states_one_per_subject", fields=["rule", "subject"])]


class NoticeBookmark(models.Model):
    """How far the history of one table has been read; see jobs.services.notices.following."""

    source = models.TextField(primary_key=True)  # the leased table
    done_id = models.BigIntegerField()  # every event up to it was looked at
    seen_id = models.BigIntegerField()  # the newest that was visible …
    writers = ArrayField(models.TextField(), db_default=[])  # … while these transactions might still add older ones

    class Meta:
        db_table = "notice_bookmarks"
        db_table_comment = "How far the history of a table was read for notices."


class Notice(models.Model):
    """One message to one channel, in the order of the ids. The delivery id is the same at every attempt."""

    class Status(models.TextChoices):
        HELD = "held", _("held")  # until it is known whether it goes alone or in a digest
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        DEAD = "dead", _("given up")
        REFUSED = "refused", _("test refused")
        DIGESTED = "digested", _("in a digest")

    id = models.BigAutoField(primary_key=True)
    delivery_id = models.UUIDField(_("delivery id"), unique=True, db_default=RandomUUID(), editable=False)
    channel = models.ForeignKey(
        NoticeChannel, verbose_name=_("channel"), on_delete=models.PROTECT, related_name="notices"
    )
    rule = models.ForeignKey(
        NoticeRule, verbose_name=_("rule"), null=True, on_delete=models.SET_NULL, related_name="notices"
    )
    event = models.TextField(_("event"), choices=Event)
    root_id = models.UUIDField(_("job"), null=True)  # the chain that it is about
    title = models.TextField(_("title"))
    body = models.TextField(_("text"), db_default="")
    path = models.TextField(_("page"), db_default="")  # of the admin
    status = models.TextField(_("status"), choices=Status, db_default=Status.HELD.value)
    attempts = models.IntegerField(_("attempts"), db_default=0)
    next_attempt_at = models.DateTimeField(_("next attempt"), null=True)  # a sender that took it moves it ahead
    claim_id = models.UUIDField(null=True)  # of the sender that took it last
    last_error = models.TextField(_("error"), db_default="")
    digest = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="digested")
    created_at = models.DateTimeField(_("created"), db_default=SqlNow())
    released_at = models.DateTimeField(_("released"), null=True)
    sent_at = models.DateTimeField(_("sent"), null=True)

    class Meta:
        db_table = "notices"
        db_table_comment = "The outbox of notices: one row is one message to one channel."
        verbose_name = _("notice")
        verbose_name_plural = _("notices")
        permissions = [("retry_notice", "Can send notices again")]
        constraints = [
            models.CheckConstraint(
                name="notices_status_known",
                condition=Q(status__in=["held", "waiting", "sent", "dead", "refused", "digested"]),
            ),
            # What waits without a time is never sent.
            models.CheckConstraint(
                name="notices_waits_for_a_time", condition=~Q(status="waiting") | Q(next_attempt_at__isnull=False)
            ),
        ]
        indexes = [
            models.Index(name="notices_due_idx", fields=["channel", "id"], condition=Q(status="waiting")),
            models.Index(name="notices_held_idx", fields=["channel"], condition=Q(status="held")),
            models.Index(name="notices_released_idx", fields=["channel", "released_at"]),
        ]

    def __str__(self) -> str:
        return self.title
