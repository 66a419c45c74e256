"""The composition root: settings, URLs, admin site, embedded PostgreSQL and the process supervisor."""

__version__ = "1.0.0"
