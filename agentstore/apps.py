"""The admin as this project runs it; settings install this class in place of Django's own."""

from django.contrib.admin.apps import AdminConfig as DjangoAdminConfig
from django.core.checks import Tags, register

from agentstore.durability import check_durability


class AdminConfig(DjangoAdminConfig):
    default_site = "agentstore.admin_site.AdminSite"

    def ready(self) -> None:
        """Add the check of the whole installation to Django's own."""
        super().ready()
        register(check_durability, Tags.database)
