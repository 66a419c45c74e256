"""The configuration, read once from the environment; `config` is what this process runs with."""

import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from jobs.services.github.issuers import GITHUB_COM, issuer

REPOSITORY = Path(__file__).resolve().parent.parent
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  (recognised here, bound only if HOST says so)
TRUE, FALSE = frozenset({"1", "true", "yes", "on", "y", "t"}), frozenset({"", "0", "false", "no", "off", "n", "f"})
SMTP_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
SAMPLE_KEY_WORDS = ("django-insecure", "change", "example", "sample", "secret-key", "your-")

MIB = 1024 * 1024

T = TypeVar("T")


class ConfigurationError(Exception):
    """Some variables cannot be used; `problems` holds one sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set; each field's variable stands in `from_environment`, durations are seconds."""

    home: Path
    database_url: str = field(repr=False)
    production: bool
    debug: bool
    secret_key: str = field(repr=False)
    allowed_hosts: tuple[str, ...]
    host: str
    port: int
    public_url: str
    workers: int
    threads: int
    trusted_proxies: int
    serves_web: bool
    web_statement_timeout: int
    prepared_statements: bool
    maintenance_timeout: int
    poll_seconds: int
    metrics_token: str = field(repr=False)
    log_level: str
    artifact_max_bytes: int
    artifact_max_files: int
    artifact_max_job_bytes: int
    signed_url_seconds: int
    s3_bucket: str
    s3_endpoint: str
    s3_public_endpoint: str
    s3_region: str
    s3_addressing: str
    smtp_url: str = field(repr=False)
    mail_from: str
    notice_networks: tuple[str, ...]
    github_issuers: tuple[str, ...]
    github_audience: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Config":
        """Read all variables or raise ConfigurationError with every problem; makes the development secret key."""
        read = _Reader(environment)
        production = read.boolean("PRODUCTION")
        host = read.text("HOST", "127.0.0.1")
        port = read.integer("PORT", 8000, 1, 65535)
        home = Path(read.text("AGENTSTORE_HOME", str(REPOSITORY / "var"))).expanduser().resolve()
        endpoint = read.parsed("AGENTSTORE_S3_ENDPOINT", "", _endpoint)
        values = cls(
            home=home,
            database_url=read.parsed("DATABASE_URL", "", _database_url),
            production=production,
            debug=read.boolean("DEBUG"),
            secret_key=read.text("SECRET_KEY", ""),
            allowed_hosts=read.words("ALLOWED_HOSTS") or (() if production else _development_hosts(host)),
            host=host,
            port=port,
            public_url=read.parsed("AGENTSTORE_PUBLIC_URL", _local_url(host, port), _public_url),
            workers=read.integer("AGENTSTORE_WORKERS", 2, 1, 64),
            threads=read.integer("AGENTSTORE_THREADS", 4, 1, 256),
            trusted_proxies=read.integer("AGENTSTORE_TRUSTED_PROXIES", 0, 0, 10),
            serves_web=read.text("AGENTSTORE_PROCESS", "") == "web",
            web_statement_timeout=read.integer("AGENTSTORE_WEB_STATEMENT_TIMEOUT", 5, 1, 3600),
            maintenance_timeout=read.integer("AGENTSTORE_MAINTENANCE_TIMEOUT", 60, 1, 3600),
            prepared_statements=read.boolean("AGENTSTORE_PREPARED_STATEMENTS", default=True),
            poll_seconds=read.integer("AGENTSTORE_POLL_SECONDS", 5, 1, 3600),
            metrics_token=read.parsed("AGENTSTORE_METRICS_TOKEN", "", _token),
            log_level=read.parsed("AGENTSTORE_LOG_LEVEL", "INFO", _log_level),
            artifact_max_bytes=read.integer("AGENTSTORE_ARTIFACT_MAX_BYTES", 50 * MIB, 1, 2**31 - 1),
            artifact_max_files=read.integer("AGENTSTORE_ARTIFACT_MAX_FILES", 200, 1, 10_000),
            artifact_max_job_bytes=read.integer("AGENTSTORE_ARTIFACT_MAX_JOB_BYTES", 1024 * MIB, 1, 2**40),
            signed_url_seconds=read.integer("AGENTSTORE_SIGNED_URL_SECONDS", 60, 1, 300),
            # Any of the two chooses S3. Credentials are found as every AWS tool finds them.
            s3_bucket=read.parsed("AGENTSTORE_S3_BUCKET", "agent-artifacts" if endpoint else "", _bucket),
            s3_endpoint=endpoint,
            s3_public_endpoint=read.parsed("AGENTSTORE_S3_PUBLIC_ENDPOINT", "", _endpoint),
            s3_region=read.text("AGENTSTORE_S3_REGION", "us-east-1"),
            # Servers of one's own seldom have a host name for each bucket.
            s3_addressing=read.parsed("AGENTSTORE_S3_ADDRESSING", "path" if endpoint else "virtual", _addressing),
            smtp_url=read.parsed("AGENTSTORE_SMTP_URL", "", _smtp_url),
            mail_from=read.text("AGENTSTORE_MAIL_FROM", "agentstore@localhost"),
            notice_networks=read.parsed("AGENTSTORE_NOTICE_NETWORKS", (), _networks),
            github_issuers=read.parsed("AGENTSTORE_GITHUB_ISSUERS", (GITHUB_COM,), _issuers),
            github_audience=read.text("AGENTSTORE_GITHUB_AUDIENCE", ""),
        )
        problems = read.problems + (values._production_problems() if production else [])
        if problems:
            raise ConfigurationError(problems)
        return values if values.secret_key else _with_development_key(values)

    def _production_problems(self) -> list[str]:
        problems = []
        key = self.secret_key
        if not key:
            problems.append("SECRET_KEY is not set: production needs a random one of at least 50 characters.")
        elif len(key) < 50 or len(set(key)) < 5 or any(word in key.lower() for word in SAMPLE_KEY_WORDS):
            problems.append("SECRET_KEY is a sample or too short: production needs a random one of 50 characters.")
        if self.debug:
            problems.append("DEBUG is on: production never shows tracebacks to visitors, so unset it.")
        if not self.allowed_hosts:
            problems.append(
                "ALLOWED_HOSTS is not set: name the hosts that people and runners use, separated by commas."
            )
        elif "*" in self.allowed_hosts:
            problems.append("ALLOWED_HOSTS is *: name the hosts, otherwise links can be forged by the Host header.")
        browsers = self.s3_public_endpoint or self.s3_endpoint
        if browsers and urlsplit(browsers).netloc == urlsplit(self.public_url).netloc:
            # A bucket cannot say nosniff or sandbox: its files must not share an origin with the admin.
            problems.append("AGENTSTORE_S3_PUBLIC_ENDPOINT is the address of the admin: evidence needs another host.")
        return problems


class _Reader:
    """Reads single variables, collects what is wrong with them and goes on with the default."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def text(self, name: str, default: str) -> str:
        return self._environment.get(name, "").strip() or default

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(word for word in (part.strip() for part in self.text(name, "").split(",")) if word)

    def boolean(self, name: str, *, default: bool = False) -> bool:
        word = self.text(name, "1" if default else "").lower()
        if word not in TRUE | FALSE:
            self.problems.append(f"{name} is {word!r}: use 1 or 0.")
        return word in TRUE

    def integer(self, name: str, default: int, lowest: int, highest: int) -> int:
        def parse(text: str) -> int:
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
            if not lowest <= number <= highest:
                raise ValueError(f"use a whole number from {lowest} to {highest}")
            return number

        return self.parsed(name, default, parse)

    def parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        text = self.text(name, "")
        try:
            return parse(text) if text else default
        except ValueError as error:
            # The value stays out of the message: a database URL carries a password.
            self.problems.append(f"{name} cannot be used: {error}.")
            return default


def _database_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("it must begin with postgresql://, agentstore runs on PostgreSQL only")
    try:
        parts = conninfo_to_dict(text)
    except ProgrammingError:
        raise ValueError("it is no valid postgresql:// URL") from None
    if not parts.get("dbname"):
        raise ValueError("it names no database")
    return text


def _public_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("it must be the address that people open, such as https://jobs.example.com")
    return text.rstrip("/")


def _bucket(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", text):
        raise ValueError("a bucket has 3 to 63 lower case letters, digits, dots and hyphens")
    return text


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError("it must be an address without a path, such as https://s3.example.com")
    if "@" in parts.netloc:
        raise ValueError("it must hold no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return text.rstrip("/")


def _addressing(text: str) -> str:
    if text not in ("path", "virtual", "auto"):
        raise ValueError("use path, virtual or auto")
    return text


def _token(text: str) -> str:
    if len(text) < 20 or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("use at least 20 printable ASCII characters without spaces")
    return text


def _smtp_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in SMTP_PORTS or not parts.hostname or parts.port == 0:
        raise ValueError(f"it must begin with one of {', '.join(f'{word}://' for word in SMTP_PORTS)} and name a host")
    return text


def _networks(text: str) -> tuple[str, ...]:
    return tuple(str(ip_network(part.strip())) for part in text.split(",") if part.strip())


def _issuers(text: str) -> tuple[str, ...]:
    return tuple(issuer(part.strip()).url for part in text.split(",") if part.strip())


def _log_level(text: str) -> str:
    level = text.upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ValueError("use DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return level


def _development_hosts(host: str) -> tuple[str, ...]:
    return LOOPBACK if host in (*EVERYWHERE, *LOOPBACK) else (*LOOPBACK, host)


def _local_url(host: str, port: int) -> str:
    name = "127.0.0.1" if host in EVERYWHERE else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _with_development_key(config: Config) -> Config:
    """Take the installation's own key from its home folder, or make one; sessions outlive a restart that way."""
    path = config.home / "secret_key"
    try:
        config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            draft = path.with_name(f"secret_key.{os.getpid()}.{secrets.token_hex(4)}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(64))
            try:
                os.link(draft, path)  # not rename: of two processes that start together the first one's key stays
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        key = path.read_text().strip()
    except OSError as error:
        problem = (
            f"The secret key in {path} cannot be read or made ({error.strerror}): set SECRET_KEY or AGENTSTORE_HOME."
        )
        raise ConfigurationError([problem]) from error
    if len(key) < 50:
        raise ConfigurationError([f"The secret key in {path} is too short: delete the file, a new one is made."])
    return replace(config, secret_key=key)


def _stop(error: ConfigurationError) -> NoReturn:
    for problem in error.problems:
        print(problem, file=sys.stderr)
    raise SystemExit(2) from None


try:
    config = Config.from_environment(os.environ)
except ConfigurationError as error:
    _stop(error)
