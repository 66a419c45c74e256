"""What the environment may say, and what production refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentstore.config import REPOSITORY, Config, ConfigurationError

KEY = "wq8Zk2mVd0xYt7RbN4cJh6GfPs9LuEaQ1oXi5TzKyMvBnHgDrC3W"
PRODUCTION = {"PRODUCTION": "1", "SECRET_KEY": KEY, "ALLOWED_HOSTS": "jobs.example.com"}


def problems(**variables: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        Config.from_environment(variables)
    return caught.value.problems


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


def test_an_empty_environment_is_a_development_server_on_loopback(tmp_path: Path) -> None:
    config = Config.from_environment({"AGENTSTORE_HOME": str(tmp_path)})
    assert (config.host, config.port, config.public_url) == ("127.0.0.1", 8000, "http://127.0.0.1:8000")
    assert not config.production
    assert not config.debug
    assert "*" not in config.allowed_hosts


def test_the_development_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    home = tmp_path / "new"
    first = Config.from_environment({"AGENTSTORE_HOME": str(home)})
    second = Config.from_environment({"AGENTSTORE_HOME": str(home)})
    assert first.secret_key == second.secret_key
    assert len(first.secret_key) >= 50
    assert (home / "secret_key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in home.iterdir()] == ["secret_key"]


def test_a_key_file_that_was_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("")
    assert "too short" in problems(AGENTSTORE_HOME=str(tmp_path))[0]


def test_a_home_that_cannot_hold_the_key_is_one_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "set SECRET_KEY or AGENTSTORE_HOME" in problems(AGENTSTORE_HOME=str(tmp_path / "file"))[0]


@pytest.mark.parametrize("word", ["1", "true", "YES", "On", "y", "t"])
def test_every_value_of_truth_chooses_production(word: str) -> None:
    assert Config.from_environment({**PRODUCTION, "PRODUCTION": word}).production


@pytest.mark.parametrize("word", ["", "0", "false", "No", "off"])
def test_every_value_of_falsehood_chooses_development(word: str, tmp_path: Path) -> None:
    assert not Config.from_environment({"PRODUCTION": word, "AGENTSTORE_HOME": str(tmp_path)}).production


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PRODUCTION", "maybe", "use 1 or 0"),
        ("DEBUG", "2", "use 1 or 0"),
        ("PORT", "0", "from 1 to 65535"),
        ("PORT", "80a", "from 1 to 65535"),
        ("PORT", "²", "from 1 to 65535"),
        ("PORT", "9" * 5000, "from 1 to 65535"),
        ("AGENTSTORE_WORKERS", "-1", "from 1 to 64"),
        ("DATABASE_URL", "mysql://host/name", "PostgreSQL only"),
        ("DATABASE_URL", "postgresql://host/", "names no database"),
        ("DATABASE_URL", "postgresql://host/name?no_such=1", "no valid postgresql:// URL"),
        ("AGENTSTORE_PUBLIC_URL", "jobs.example.com", "https://jobs.example.com"),
        ("AGENTSTORE_PUBLIC_URL", "http://[", "AGENTSTORE_PUBLIC_URL cannot be used"),
        ("AGENTSTORE_LOG_LEVEL", "loud", "use DEBUG, INFO"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_the_reason(name: str, value: str, reason: str) -> None:
    (problem,) = problems(**{"SECRET_KEY": KEY, name: value})
    assert problem.startswith(name)
    assert reason in problem


def test_all_problems_are_told_at_once() -> None:
    assert len(problems(PRODUCTION="1", DEBUG="1", PORT="x")) == 4


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY"),
        ({"SECRET_KEY": "a" * 60}, "SECRET_KEY"),
        ({"SECRET_KEY": "django-insecure-" + KEY}, "SECRET_KEY"),
        ({"SECRET_KEY": "please-change-me-" + KEY}, "SECRET_KEY"),
        ({"DEBUG": "1"}, "DEBUG"),
        ({"ALLOWED_HOSTS": ""}, "ALLOWED_HOSTS"),
        ({"ALLOWED_HOSTS": " , "}, "ALLOWED_HOSTS"),
        ({"ALLOWED_HOSTS": "a.example,*"}, "ALLOWED_HOSTS"),
    ],
)
def test_production_refuses_what_would_be_unsafe(changes: dict[str, str], name: str) -> None:
    (problem,) = problems(**{**PRODUCTION, **changes})
    assert problem.startswith(name)


def test_secrets_are_neither_in_the_repr_nor_in_a_message() -> None:
    url = "postgresql://user:hunter2@host/name"
    shown = repr(Config.from_environment({**PRODUCTION, "DATABASE_URL": url}))
    assert KEY not in shown
    assert "hunter2" not in shown
    assert "hunter2" not in problems(SECRET_KEY=KEY, DATABASE_URL=url + "?no_such=1")[0]


@pytest.mark.parametrize(
    "arguments",
    [("manage.py", "check"), ("-m", "agentstore.supervisor"), ("-c", "import agentstore.wsgi")],
)
def test_a_refused_start_is_one_sentence_without_a_traceback(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, **{**PRODUCTION, "ALLOWED_HOSTS": ""})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("ALLOWED_HOSTS is not set")


def test_the_deployment_check_has_nothing_to_say_about_production(tmp_path: Path) -> None:
    done = run("-W", "error", "manage.py", "check", "--deploy", "--fail-level", "WARNING",
               AGENTSTORE_HOME=str(tmp_path), **PRODUCTION)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_database_url_becomes_the_connection_with_its_options() -> None:
    code = (
        "from agentstore.settings import DATABASES; d = DATABASES['default'];"
        "print(d['NAME'], d['HOST'], d['PORT'], d['PASSWORD'], d['OPTIONS']['sslmode'], d['OPTIONS']['options'])"
    )
    url = "postgresql://u:p%40ss@db.example:6432/jobs?sslmode=require&options=-c%20search_path%3Dapp"
    done = run("-c", code, DATABASE_URL=url, SECRET_KEY=KEY)
    assert done.stdout.startswith("jobs db.example 6432 p@ss require -c idle_in_transaction_session_timeout=60s")
    assert done.stdout.endswith("-c search_path=app\n")


def test_only_a_web_process_limits_how_long_a_statement_may_run_and_how_long_it_waits_for_an_answer() -> None:
    code = (
        "from agentstore.settings import DATABASES; d = DATABASES['default'];"
        "print(d['OPTIONS']['options'], d['SILENCE_SECONDS'])"
    )
    web = run("-c", "import agentstore.wsgi;" + code, SECRET_KEY=KEY, AGENTSTORE_WEB_STATEMENT_TIMEOUT="7")
    command = run("-c", code, SECRET_KEY=KEY)
    assert web.stdout.endswith("statement_timeout=7s 9\n"), web.stderr
    assert "statement_timeout" not in command.stdout.replace("idle_in_transaction_session_timeout", "")
    assert command.stdout.endswith(" None\n")


@pytest.mark.parametrize(("value", "threshold"), [("", "0"), ("1", "0"), ("0", "None")])
def test_preparing_and_what_goes_with_it_can_be_turned_off_for_a_pooler(
    tmp_path: Path, value: str, threshold: str
) -> None:
    say = (
        "from agentstore.settings import DATABASES; database = DATABASES['default']; options = database['OPTIONS']; "
        "print(options['prepare_threshold'], 'plan_cache_mode' in options['options'], "
        "database['DISABLE_SERVER_SIDE_CURSORS'])"
    )
    answer = run("-c", say, AGENTSTORE_HOME=str(tmp_path), AGENTSTORE_PREPARED_STATEMENTS=value)
    prepares = threshold == "0"
    assert answer.stdout.split() == [threshold, str(prepares), str(not prepares)], answer.stderr


def test_evidence_lies_in_a_folder_until_a_bucket_or_an_endpoint_is_named() -> None:
    assert Config.from_environment({"SECRET_KEY": KEY}).s3_bucket == ""
    own = Config.from_environment({"SECRET_KEY": KEY, "AGENTSTORE_S3_ENDPOINT": "http://10.0.0.5:9000/"})
    assert (own.s3_bucket, own.s3_endpoint, own.s3_addressing) == ("agent-artifacts", "http://10.0.0.5:9000", "path")
    amazon = Config.from_environment({"SECRET_KEY": KEY, "AGENTSTORE_S3_BUCKET": "evidence"})
    assert (amazon.s3_bucket, amazon.s3_region, amazon.s3_addressing) == ("evidence", "us-east-1", "virtual")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENTSTORE_S3_BUCKET", "Evidence"),
        ("AGENTSTORE_S3_BUCKET", "a"),
        ("AGENTSTORE_S3_ENDPOINT", "s3.example.com"),
        ("AGENTSTORE_S3_ENDPOINT", "https://s3.example.com/bucket"),
        ("AGENTSTORE_S3_ENDPOINT", "https://key:secret@s3.example.com"),
        ("AGENTSTORE_S3_PUBLIC_ENDPOINT", "ftp://files.example.com"),
        ("AGENTSTORE_S3_ADDRESSING", "dns"),
    ],
)
def test_what_cannot_be_a_bucket_or_its_address_is_refused_by_name(name: str, value: str) -> None:
    (problem,) = problems(**{name: value})
    assert problem.startswith(f"{name} cannot be used")
    assert "secret@" not in problem


def test_evidence_never_shares_its_address_with_the_admin_in_production() -> None:
    said = problems(
        **PRODUCTION,
        AGENTSTORE_PUBLIC_URL="https://jobs.example.com",
        AGENTSTORE_S3_ENDPOINT="http://10.0.0.5:9000",
        AGENTSTORE_S3_PUBLIC_ENDPOINT="https://jobs.example.com",
    )
    assert said == ["AGENTSTORE_S3_PUBLIC_ENDPOINT is the address of the admin: evidence needs another host."]


def test_the_settings_give_the_bucket_what_the_environment_says() -> None:
    script = "from agentstore.settings import STORAGES; print(STORAGES['artifacts'])"
    out = run("-c", script, SECRET_KEY=KEY, AGENTSTORE_S3_BUCKET="evidence", AGENTSTORE_S3_REGION="eu-central-1").stdout
    assert "PrivateS3Storage" in out
    assert "'signature_version': 's3v4'" in out
    assert "'region_name': 'eu-central-1'" in out
