"""Django's settings; what differs between installations comes from agentstore.config."""

from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from csp.constants import NONE, SELF, UNSAFE_INLINE
from psycopg.conninfo import conninfo_to_dict

from agentstore import __version__, embedded_postgres, log_lines
from agentstore.admin_look import UNFOLD  # noqa: F401  (a setting)
from agentstore.config import REPOSITORY, SMTP_PORTS, config

BASE_DIR = REPOSITORY
DEBUG = config.debug
SECRET_KEY = config.secret_key
ALLOWED_HOSTS = list(config.allowed_hosts)
CSRF_TRUSTED_ORIGINS = ["{0.scheme}://{0.netloc}".format(urlsplit(config.public_url))]
PUBLIC_URL = config.public_url

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",  # its default would put its own admin site in place of ours
    "unfold.contrib.filters",
    "agentstore.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "django_filters",
    "pgtrigger",
    "pghistory",
    "axes",
    "csp",
    "storages",
    "jobs",
    "artifacts",
]
MIDDLEWARE = [
    "agentstore.health.HealthMiddleware",  # first: a probe knows neither the host name nor TLS
    "django.middleware.security.SecurityMiddleware",
    "agentstore.runner_door.RunnerDoor",  # what follows is for people
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "agentstore.no_store.NoStore",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "agentstore.history.HistoryMiddleware",
    "axes.middleware.AxesMiddleware",  # last: it answers a locked-out login
]
ROOT_URLCONF = "agentstore.urls"
WSGI_APPLICATION = "agentstore.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# Times are UTC in the database and in the API; two languages for people.
TIME_ZONE = "UTC"
USE_TZ = True
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [BASE_DIR / "locale"]


def _database() -> dict[str, Any]:
    if config.database_url:
        parts: dict[str, Any] = {key: value for key, value in conninfo_to_dict(config.database_url).items() if value}
        names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
        database: dict[str, Any] = {names[name]: parts.pop(name) for name in tuple(parts) if name in names}
        database |= {"ENGINE": "django.db.backends.postgresql", "OPTIONS": parts}
    else:
        database = embedded_postgres.connection_settings(config.home)
    server_options = ["-c idle_in_transaction_session_timeout=60s", "-c lock_timeout=20s"]
    if config.prepared_statements:
        # Plans what is prepared once. Left to itself PostgreSQL planned each of 900 claims anew.
        server_options.append("-c plan_cache_mode=force_generic_plan")
    if config.serves_web:
        server_options.append(f"-c statement_timeout={config.web_statement_timeout}s")
    given: dict[str, Any] = database.get("OPTIONS", {})
    database["OPTIONS"] = {
        "application_name": "agentstore-web" if config.serves_web else "agentstore",
        "connect_timeout": 5,
        # A database host that vanishes is noticed within ten seconds, not after the kernel's two hours.
        "keepalives_idle": 4,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 9_000,
        # For the statements of jobs.engine.server_bound: each prepared at its first use, or never.
        "prepare_threshold": 0 if config.prepared_statements else None,
        **given,
        "options": " ".join([*server_options, str(given.get("options", ""))]).strip(),
    }
    # Ours finds out without a statement whether a kept connection has ended, and waits for no answer for ever.
    database["ENGINE"] = "agentstore.postgres"
    # The server has cancelled the statement before: what is silent still is the line, or something on it.
    database["SILENCE_SECONDS"] = config.web_statement_timeout + 2 if config.serves_web else None
    database["CONN_MAX_AGE"] = 600  # kept by each web thread
    # A pooler that shares connections between transactions keeps neither prepared statements nor cursors.
    database["DISABLE_SERVER_SIDE_CURSORS"] = not config.prepared_statements
    return database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

STATIC_URL = "static/"
# In development whitenoise finds the files where they lie, and would warn about a folder that is not there.
STATIC_ROOT = BASE_DIR / "staticfiles" if config.production else None
# vendor first: its Alpine takes the place of the one that unfold ships, which needs unsafe-eval.
STATICFILES_DIRS = [folder for folder in (BASE_DIR / "static" / "vendor", BASE_DIR / "static") if folder.is_dir()]
WHITENOISE_USE_FINDERS = not config.production


def _artifacts() -> dict[str, Any]:
    if not config.s3_bucket:
        options: dict[str, Any] = {"location": config.home / "artifacts"}
        options |= {"file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}
        return {"BACKEND": "artifacts.services.file_storage.PrivateFileStorage", "OPTIONS": options}
    options = {"bucket_name": config.s3_bucket, "region_name": config.s3_region}
    options |= {"addressing_style": config.s3_addressing, "signature_version": "s3v4"}
    options |= {"endpoint_url": config.s3_endpoint or None, "public_endpoint": config.s3_public_endpoint}
    return {"BACKEND": "artifacts.services.s3_storage.PrivateS3Storage", "OPTIONS": options}


STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # nothing is stored without a named alias
    "artifacts": _artifacts(),
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if config.production
        else "django.contrib.staticfiles.storage.StaticFilesStorage",
    },
}

ARTIFACT_MAX_BYTES = config.artifact_max_bytes
ARTIFACT_MAX_FILES = config.artifact_max_files  # of one job
ARTIFACT_MAX_JOB_BYTES = config.artifact_max_job_bytes
AGENTSTORE_SIGNED_URL_SECONDS = config.signed_url_seconds

# Notices go out by mail if a server is named, and to these networks besides public addresses.
_smtp = urlsplit(config.smtp_url)
EMAIL_HOST = _smtp.hostname or ""
EMAIL_PORT = _smtp.port or SMTP_PORTS.get(_smtp.scheme, 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_smtp.username or ""), unquote(_smtp.password or "")
EMAIL_USE_TLS, EMAIL_USE_SSL = _smtp.scheme == "smtp+starttls", _smtp.scheme == "smtps"
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = SERVER_EMAIL = config.mail_from
NOTICE_NETWORKS = config.notice_networks
GITHUB_ISSUERS = config.github_issuers
GITHUB_AUDIENCE = config.github_audience or config.public_url

# A spec or a result may have 2 MiB of JSON; in a form of the admin every byte of it can become three.
JSON_BODY_BYTES = 2 * 1024 * 1024
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 * JSON_BODY_BYTES + 64 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = JSON_BODY_BYTES
# Of one client address; more than that is 429 until the minute is over.
REFUSED_BEARERS_PER_MINUTE = 100
# How long runners wait before they ask again for work, as Retry-After.
POLL_SECONDS = config.poll_seconds
METRICS_TOKEN = config.metrics_token
# How long one statement of the maintenance loop may stay without an answer before its connection is given up.
MAINTENANCE_TIMEOUT = config.maintenance_timeout

LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25  # hours
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_CLIENT_IP_CALLABLE = "agentstore.client_address.client_address"
AXES_VERBOSE = False

SESSION_COOKIE_AGE = 12 * 60 * 60
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = config.production
SECURE_SSL_REDIRECT = config.production
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if config.production else 0
# This host speaks for itself only; its sibling and child names may be somebody else's.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_REFERRER_POLICY = "same-origin"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if config.trusted_proxies else None
X_FRAME_OPTIONS = "DENY"
TRUSTED_PROXIES = config.trusted_proxies
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, UNSAFE_INLINE],  # unfold writes two to seven inline styles into every page
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # each endpoint names its own
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.URLPathVersioning",
    "DEFAULT_VERSION": "v1",
    "ALLOWED_VERSIONS": ["v1"],
    "EXCEPTION_HANDLER": "jobs.api.problem.handler",
    "NUM_PROXIES": config.trusted_proxies,
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "agentstore",
    "DESCRIPTION": "A governed job store for agents that pull.",
    "VERSION": __version__,
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": ["jobs.api.openapi.add_components"],
    "ENABLE_DJANGO_DEPLOY_CHECK": False,  # the schema is checked against the committed one, not at each deployment
}

structlog.configure(**log_lines.structlog_configuration())
LOGGING = log_lines.logging_configuration(level=config.log_level, json=config.production)
