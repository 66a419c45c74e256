"""A host gets its token once: into a file of its own, before anything says so, whatever the network does."""

import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner import enrolment
from agentstore_runner.bearer import Bearer
from agentstore_runner.cli import main
from agentstore_runner.client import Client
from click.testing import CliRunner, Result
from standin import CODE, TOKEN, StandIn

Enrol = Callable[..., Result]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return tmp_path / "token"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentstore_runner.cli.time.sleep", lambda seconds: None)


@pytest.fixture
def enrol(server: StandIn, token_file: Path) -> Enrol:
    def run(*arguments: str, code: str = CODE) -> Result:
        options = ["--server", server.url, "--code-stdin", "--name", "fw-1", "--token-file", str(token_file)]
        return CliRunner().invoke(main, ["enrol", *options, *arguments], input=code + "\n")

    return run


def names_beside(path: Path) -> list[str]:
    return [found.name for found in path.parent.iterdir()]


def test_the_token_lies_in_a_file_of_its_owner_alone_and_what_comes_next_is_said(
    enrol: Enrol, token_file: Path, server: StandIn
) -> None:
    result = enrol()
    assert result.exit_code == 0, result.output
    assert token_file.read_text() == TOKEN + "\n"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    assert names_beside(token_file) == ["token"]
    assert f"doctor --server {server.url} --token-file {token_file}" in result.output
    assert "fw-1" in result.output
    assert CODE not in result.output
    assert TOKEN not in result.output
    assert "authorization" not in server.called("enrol")[0].headers
    # Its first use tells the server that it has arrived.
    assert server.names() == ["enrol", "me"]


@pytest.mark.parametrize("how", ["file", "dash"])
def test_the_code_may_come_from_a_file(how: str, server: StandIn, token_file: Path, tmp_path: Path) -> None:
    code = tmp_path / "the-code"
    code.write_text(CODE)
    code.chmod(0o600)
    where = str(code) if how == "file" else "-"
    options = ["--server", server.url, "--code-file", where, "--token-file", str(token_file)]
    result = CliRunner().invoke(main, ["enrol", *options], input=CODE)
    assert (result.exit_code, token_file.exists()) == (0, True)


def test_a_file_that_exists_is_kept_and_nothing_is_asked(enrol: Enrol, token_file: Path, server: StandIn) -> None:
    token_file.write_text("mine")
    result = enrol()
    assert (result.exit_code, token_file.read_text(), server.calls) == (2, "mine", [])
    assert "--force" in result.output
    assert enrol("--force").exit_code == 0
    assert token_file.read_text() == TOKEN + "\n"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600


def test_a_link_that_leads_nowhere_is_not_written_through(enrol: Enrol, token_file: Path, tmp_path: Path) -> None:
    token_file.symlink_to(tmp_path / "elsewhere")
    assert enrol().exit_code == 2
    assert enrol("--force").exit_code == 0
    assert not (tmp_path / "elsewhere").exists()
    assert not token_file.is_symlink()


def test_a_folder_that_is_not_there_is_said_before_the_code_is_spent(enrol: Enrol, server: StandIn) -> None:
    result = enrol("--token-file", "/nowhere/at/all/token")
    assert (result.exit_code, server.calls) == (2, [])
    assert "No such file" in result.output


@pytest.mark.parametrize("how", ["cut", "reply"])
def test_a_lost_answer_is_asked_for_again_with_the_same_id(
    how: str, enrol: Enrol, token_file: Path, server: StandIn
) -> None:
    server.fail_next("enrol", acts=True, how=how)
    assert enrol().exit_code == 0
    ids = [call.body["enrolment_id"] for call in server.called("enrol")]
    assert (len(ids), len(set(ids))) == (2, 1)
    assert token_file.read_text() == TOKEN + "\n"


def test_a_process_that_died_is_followed_by_one_that_asks_with_its_id(
    enrol: Enrol, token_file: Path, server: StandIn
) -> None:
    def killed(_: Any) -> None:
        raise KeyboardInterrupt

    server.fail_next("enrol", acts=True, how="cut")
    with pytest.raises(KeyboardInterrupt):
        enrolment.enrol(
            server.url, Bearer(CODE), name="fw-1", token_file=token_file, force=False,
            connect=lambda bearer: Client(server.url, bearer), rng=random.Random(1), say=print, wait=killed,
        )  # fmt: skip
    assert not token_file.exists()
    left = token_file.with_name(".token.enrolling")
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    assert CODE not in left.read_text()
    assert enrol().exit_code == 0
    assert len({call.body["enrolment_id"] for call in server.called("enrol")}) == 1
    assert names_beside(token_file) == ["token"]


def test_a_refusal_is_said_and_the_next_try_has_an_id_of_its_own(
    enrol: Enrol, token_file: Path, server: StandIn
) -> None:
    wrong = "ags_e_wrong00wrong00wrong00wrong00"
    for _ in range(2):
        result = enrol(code=wrong)
        assert (result.exit_code, token_file.exists()) == (3, False)
        assert "enrolment_refused" in result.output
        assert wrong not in result.output
    assert len({call.body["enrolment_id"] for call in server.called("enrol")}) == 2
    assert names_beside(token_file) == []


def test_a_server_that_does_not_answer_is_given_up_and_the_id_kept(
    enrol: Enrol, token_file: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "PATIENCE_S", 0.0)
    server.fail_next("enrol", acts=False, status=503)
    result = enrol()
    assert (result.exit_code, names_beside(token_file)) == (75, [".token.enrolling"])
    assert "same command again" in result.output


@pytest.mark.parametrize("options", [[], ["--code-stdin", "--code-file", "x"], ["--code-file", "/nowhere"]])
def test_without_one_readable_code_nothing_is_asked(options: list[str], server: StandIn, token_file: Path) -> None:
    result = CliRunner().invoke(main, ["enrol", "--server", server.url, "--token-file", str(token_file), *options])
    assert (result.exit_code, server.calls) == (2, [])


def test_a_code_never_goes_unencrypted_to_another_machine(token_file: Path) -> None:
    options = ["--server", "http://jobs.example.org", "--code-stdin", "--token-file", str(token_file)]
    result = CliRunner().invoke(main, ["enrol", *options], input=CODE)
    assert (result.exit_code, "unencrypted" in result.output) == (2, True)
