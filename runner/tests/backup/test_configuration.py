"""What this machine keeps for itself: files that nobody else may read or write, and errors that quote no secret."""

import os
from pathlib import Path

import pytest
from agentstore_runner.backup import configuration, credentials
from agentstore_runner.backup.configuration import ConfigurationError
from agentstore_runner.backup.credentials import Credential

SECRET = "s3cr3t-horse"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "credentials").mkdir()
    return {"AGENTSTORE_RUNNER_CONFIG": str(tmp_path), "PATH": os.environ["PATH"]}


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def resolve(environ: dict[str, str]) -> Credential:
    return credentials.resolve("main-repo", configuration.read(environ), environ)


def test_without_a_file_the_configuration_is_empty(environ: dict[str, str]) -> None:
    found = configuration.read(environ)

    assert (found.restic, found.hooks, found.credential_commands) == ("restic", {}, {})


def test_a_machine_is_prepared_once_it_has_a_configuration(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}

    assert not configuration.present(environ)
    (tmp_path / "agentstore-runner" / "credentials").mkdir(parents=True)
    assert configuration.present(environ)


def test_commands_have_a_time_limit(tmp_path: Path, environ: dict[str, str]) -> None:
    write(
        tmp_path / "backups.toml", '[hooks.dump]\ncommand = ["dump", "-v"]\ntimeout_s = 5\n[hooks.x]\ncommand = ["x"]'
    )

    hooks = configuration.read(environ).hooks

    assert (hooks["dump"].argv, hooks["dump"].timeout_s, hooks["x"].timeout_s) == (("dump", "-v"), 5, 600)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("restic = ", 0o600, "not TOML"),
        ("restic = 7", 0o600, "/restic"),
        ("hooks = 7", 0o600, "/hooks"),
        ('[hooks.dump]\ncommand = "rm -rf /"', 0o600, "/hooks/dump/command"),
        ("[hooks.dump]", 0o600, "/hooks/dump/command"),
        ('[hooks."../x"]\ncommand = ["x"]', 0o600, "is not a name"),
        ('[hooks.dump]\ncommand = ["x"]\ntimeout_s = 0', 0o600, "timeout_s"),
        ("", 0o620, "chmod go-w"),
        ("", 0o602, "chmod go-w"),
    ],
)
def test_a_configuration_that_cannot_be_trusted_or_understood_is_refused(
    tmp_path: Path, environ: dict[str, str], text: str, mode: int, said: str
) -> None:
    write(tmp_path / "backups.toml", text, mode)

    with pytest.raises(ConfigurationError, match=said):
        configuration.read(environ)


def test_a_credential_is_a_password_and_the_variables_of_a_back_end(tmp_path: Path, environ: dict[str, str]) -> None:
    write(
        tmp_path / "credentials/main-repo.toml",
        f'password = "{SECRET}"\n[environment]\nAWS_SECRET_ACCESS_KEY = "abcdefgh"\nAWS_DEFAULT_REGION = "eu"\n',
    )

    found = resolve(environ)

    assert (found.password, found.environment["AWS_DEFAULT_REGION"]) == (SECRET, "eu")
    assert found.secrets == [SECRET, "abcdefgh"]
    assert SECRET not in repr(found)
    assert "abcdefgh" not in repr(found)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_credential_that_others_may_read_is_refused(tmp_path: Path, environ: dict[str, str], mode: int) -> None:
    write(tmp_path / "credentials/main-repo.toml", f'password = "{SECRET}"', mode)

    with pytest.raises(ConfigurationError, match="chmod 600"):
        resolve(environ)


def test_a_link_a_pipe_a_folder_and_nothing_are_no_credential(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "credentials/main-repo.toml"
    with pytest.raises(ConfigurationError, match="No such file"):
        resolve(environ)
    path.symlink_to(write(tmp_path / "elsewhere.toml", f'password = "{SECRET}"'))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        resolve(environ)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        resolve(environ)
    path.unlink()
    path.mkdir(0o700)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        resolve(environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_credential_of_another_user_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    os.chown(write(tmp_path / "credentials/main-repo.toml", f'password = "{SECRET}"'), 65534, 65534)

    with pytest.raises(ConfigurationError, match="another user"):
        resolve(environ)


@pytest.mark.parametrize(
    "text",
    [
        f"password = {SECRET}",
        f'pass = "{SECRET}"',
        f'password = ["{SECRET}"]',
        f'password = "{SECRET}\\nx"',
        f'password = "{SECRET * 1000}"',
        f'password = "{SECRET}"\nenvironment = "{SECRET}"',
        f'password = "{SECRET}"\n[environment]\nLD_PRELOAD = "{SECRET}"',
        f'password = "{SECRET}"\n[environment]\nRESTIC_PASSWORD_COMMAND = "{SECRET}"',
        f'password = "{SECRET}"\n[environment]\nKEY = 7',
        f'"{SECRET}',
    ],
)
def test_a_credential_that_cannot_be_used_is_refused_without_quoting_it(
    tmp_path: Path, environ: dict[str, str], text: str
) -> None:
    write(tmp_path / "credentials/main-repo.toml", text)

    with pytest.raises(ConfigurationError) as refused:
        resolve(environ)

    assert "main-repo.toml" in str(refused.value)
    assert SECRET not in str(refused.value)


def command(tmp_path: Path, script: str, seconds: int = 30) -> None:
    argv = ["sh", "-c", script]
    write(tmp_path / "backups.toml", f"[credentials.main-repo]\ncommand = {argv}\ntimeout_s = {seconds}\n")


def test_a_command_may_give_the_credential(tmp_path: Path, environ: dict[str, str]) -> None:
    command(tmp_path, f"echo password = \\'{SECRET}\\'; echo noise >&2")

    assert resolve(environ).password == SECRET


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"echo {SECRET}; exit 3", "exit code 3"),
        ("exec sleep 60", "longer than 1 s"),
        (f"echo {SECRET}", "not TOML"),
    ],
)
def test_a_command_that_gives_none_is_named_and_not_quoted(
    tmp_path: Path, environ: dict[str, str], script: str, said: str
) -> None:
    command(tmp_path, script, seconds=1)

    with pytest.raises(ConfigurationError, match=said) as refused:
        resolve(environ)

    assert SECRET not in str(refused.value)
