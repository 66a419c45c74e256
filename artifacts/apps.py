"""Django's record of the artifacts app."""

from django.apps import AppConfig


class ArtifactsConfig(AppConfig):
    name = "artifacts"
    label = "artifacts"
    verbose_name = "Artifacts"
    default_auto_field = "django.db.models.BigAutoField"
