"""The command line: what it refuses, and doctor, validate and try."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner import doctor
from agentstore_runner.bearer import Bearer, TokenError, from_file, secrets_of
from agentstore_runner.cli import main
from agentstore_runner.client import AddressError, Client, checked_server
from agentstore_runner.doctor import Finding
from agentstore_runner.handlers import by_kind
from click.testing import CliRunner, Result
from harness import Process
from standin import TOKEN, StandIn
from worker import Worker

Launch = Callable[..., Process]

SPEC = {
    "version": 1,
    "target": {"base_url": "http://127.0.0.1:8999"},
    "checks": [
        {
            "id": "health",
            "title": "The service says that it is well",
            "severity": "critical",
            "steps": [{"request": {"method": "GET", "path": "/healthz", "expect": {"status": 200}}}],
        }
    ],
}


def invoke(*arguments: str, **environment: str | None) -> Result:
    return CliRunner().invoke(main, arguments, env={"AGENTSTORE_TOKEN": None, **environment})


def token_file(folder: Path, content: bytes = TOKEN.encode(), mode: int = 0o600) -> Path:
    path = folder / "agent-token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_token_that_everybody_can_read_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    path = token_file(tmp_path, mode=0o644)
    result = invoke("run", "--server", "http://127.0.0.1:1", "--token-file", str(path))
    assert result.exit_code == 2
    assert f"chmod 600 {path}" in result.output


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_token_that_owner_or_group_can_read_is_accepted_and_stripped(tmp_path: Path, mode: int) -> None:
    assert from_file(token_file(tmp_path, TOKEN.encode() + b"\r\n", mode)).reveal() == TOKEN


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words", b"two\nlines", b"\xff\xfe", "ümlaut".encode(), b"x" * 9000, b"nul\0"]
)
def test_a_file_that_holds_no_token_is_refused_without_showing_its_content(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TokenError) as refused:
        from_file(token_file(tmp_path, content))
    assert "two" not in str(refused.value)
    assert "xxx" not in str(refused.value)


def test_a_missing_token_is_said_in_one_sentence(tmp_path: Path) -> None:
    result = invoke("run", "--server", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "no token" in result.output
    result = invoke("run", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "none"))
    assert (result.exit_code, "cannot be read" in result.output) == (2, True)


def test_a_bearer_does_not_show_itself() -> None:
    bearer = Bearer(TOKEN)
    assert TOKEN not in f"{bearer!r} {bearer} {[bearer]}"


def test_the_secrets_of_a_workflow_are_known_and_short_or_ordinary_values_are_not() -> None:
    environ = {
        "UAT_PASSWORD": "correct-horse",
        "UAT_SHORT": "abc",
        "GITHUB_TOKEN": "ghs_0123456789",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "eyJ0123456789",
        "ACTIONS_RUNNER_DEBUG": "false-value",
        "HOME": "/home/somebody",
    }
    assert sorted(secrets_of(environ)) == ["correct-horse", "eyJ0123456789", "ghs_0123456789"]


@pytest.mark.parametrize(
    ("url", "allow_http", "accepted"),
    [
        ("https://jobs.example.org/", False, "https://jobs.example.org"),
        ("https://jobs.example.org/agentstore/", False, "https://jobs.example.org/agentstore"),
        ("http://localhost:8000", False, "http://localhost:8000"),
        ("http://[::1]:8000", False, "http://[::1]:8000"),
        ("http://web:8000", True, "http://web:8000"),
        ("http://web:8000", False, None),
        ("http://localhost.example.org", False, None),
        ("https://user:secret@jobs.example.org", False, None),
        ("https://jobs.example.org/?a=b", False, None),
        ("https://jobs.example.org:99999", False, None),
        ("ftp://jobs.example.org", False, None),
        ("jobs.example.org", False, None),
        ("https://", False, None),
        ("", False, None),
    ],
)
def test_the_server_must_be_an_address_that_keeps_the_token_secret(
    url: str, allow_http: bool, accepted: str | None
) -> None:
    if accepted is None:
        with pytest.raises(AddressError) as refused:
            checked_server(url, allow_http=allow_http)
        assert "secret@" not in str(refused.value)
    else:
        assert checked_server(url, allow_http=allow_http) == accepted


def test_help_tells_the_exit_codes() -> None:
    output = invoke("run", "--help").output
    assert "Exit codes:" in output
    assert "128 + n" in output


def test_a_kind_without_a_handler_is_refused_at_the_start(launch: Launch) -> None:
    process = launch("run", "--kinds", "test.echo,test.unheard")
    assert process.code() == 2
    assert "test.unheard" in process.log


def test_only_the_wanted_kinds_are_asked_for(server: StandIn, launch: Launch) -> None:
    assert launch("run", "--once", "--kinds", "test.echo, test.meet").code() == 0
    assert server.called("claim")[0].body["kinds"] == ["test.echo", "test.meet"]


def test_a_workflow_run_is_named_in_the_claim(server: StandIn, launch: Launch) -> None:
    github = {"SERVER_URL": "https://github.com", "REPOSITORY": "o/r", "RUN_ID": "12", "RUN_ATTEMPT": "3"}
    launch("run", "--once", **{f"GITHUB_{name}": value for name, value in github.items()}).code()
    assert server.called("claim")[0].body["run_ref"] == "https://github.com/o/r/actions/runs/12/attempts/3"


def test_a_job_id_is_claimed_alone_and_once(server: StandIn, launch: Launch) -> None:
    row = server.add()
    assert launch("run", "--job-id", row.id).code() == 0
    assert server.called("claim")[0].body["job_id"] == row.id
    assert launch("run", "--job-id", "not-a-uuid").code() == 2


# doctor


def findings(server: StandIn, state: Path, environ: dict[str, str], worker: Any = Worker) -> dict[str, Finding]:
    client = Client(server.url, Bearer(TOKEN))
    try:
        found = list(doctor.examine(client, state, lambda: by_kind([worker()]), environ))
    finally:
        client.close()
    assert all(finding.fix for finding in found if finding.state != "ok")
    return {finding.subject: finding for finding in found}


def no_browser(folder: Path) -> dict[str, str]:
    return {"PATH": "", "HOME": str(folder)}


def fake_browser(folder: Path, script: str) -> dict[str, str]:
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {**os.environ, "AGENTSTORE_CHROMIUM": str(path)}


@pytest.mark.usefixtures("browser")
def test_doctor_finds_nothing_wrong_where_nothing_is(server: StandIn, tmp_path: Path) -> None:
    found = findings(server, tmp_path / "state", {**os.environ, "AGENTSTORE_RUNNER_CONFIG": str(tmp_path)})
    assert {finding.state for finding in found.values()} == {"ok"}, found
    assert list(found) == ["server", "readiness", "token", "clock", "handlers", "browser", "backups", "state"]
    assert re.search(r"starts: Chromium \d+", found["browser"].detail)


def test_doctor_starts_the_browser_and_says_why_it_does_not_run(server: StandIn, tmp_path: Path) -> None:
    broken = findings(server, tmp_path, fake_browser(tmp_path, "echo 'libnss3.so: cannot open' >&2; exit 127"))
    assert broken["browser"].state == "failed"
    assert "does not start" in broken["browser"].detail
    assert "--headless" in broken["browser"].fix


def test_doctor_gives_a_browser_that_hangs_up(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "BROWSER_SECONDS", 0.5)
    found = findings(server, tmp_path, fake_browser(tmp_path, "exec sleep 60"))
    assert (found["browser"].state, "nothing happened" in found["browser"].detail) == ("failed", True)


def restic(folder: Path, version: str) -> dict[str, str]:
    """Return the environment of a machine with a configuration and a restic of this version."""
    (folder / "credentials").mkdir()
    program = folder / "restic"
    program.write_text(f"#!/bin/sh\necho restic {version} compiled with go1.19.8 on linux/amd64\n")
    program.chmod(0o700)
    (folder / "backups.toml").write_text(f'restic = "{program}"\n')
    return {**no_browser(folder), "AGENTSTORE_RUNNER_CONFIG": str(folder)}


@pytest.mark.parametrize(
    ("version", "state"), [("0.13.1", "failed"), ("0.14.0", "warning"), ("0.17.1", "ok"), ("nonsense", "failed")]
)
def test_doctor_looks_at_the_version_of_restic(server: StandIn, tmp_path: Path, version: str, state: str) -> None:
    assert findings(server, tmp_path, restic(tmp_path, version))["restic"].state == state


def test_doctor_says_what_is_wrong_with_the_configuration_of_backups(server: StandIn, tmp_path: Path) -> None:
    environ = restic(tmp_path, "0.18.0")
    none = findings(server, tmp_path, environ)
    good, bad = tmp_path / "credentials/good.toml", tmp_path / "credentials/bad.toml"
    for path, mode in ((good, 0o600), (bad, 0o644)):
        path.write_text('password = "correct-horse"')
        path.chmod(mode)
    some = findings(server, tmp_path, environ)
    (tmp_path / "backups.toml").write_text('restic = "/nonexistent/restic"')
    gone = findings(server, tmp_path, environ)
    (tmp_path / "backups.toml").write_text("restic = ")
    broken = findings(server, tmp_path, environ)

    assert none["credentials"].state == "failed"
    assert (some["credential good"].state, some["credential bad"].state) == ("ok", "failed")
    assert "correct-horse" not in str(some)
    assert gone["restic"].state == "failed"
    assert (broken["backups"].state, "not TOML" in broken["backups"].detail) == ("failed", True)


def test_doctor_warns_of_a_disk_that_is_nearly_full(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(doctor, "LEAST_SPACE", free * 2)
    found = findings(server, tmp_path, no_browser(tmp_path))
    assert (found["state"].state, "MiB are free" in found["state"].detail) == ("warning", True)
    assert "--state" in found["state"].fix


def test_doctor_goes_on_after_a_finding(server: StandIn, tmp_path: Path) -> None:
    server.skew = timedelta(minutes=-5)
    (tmp_path / "state").write_text("a file where a folder should be")

    def broken() -> Any:
        raise ImportError("no module named playwright")

    found = findings(server, tmp_path / "state", {"PATH": "", "HOME": str(tmp_path)}, broken)

    assert found["clock"].state == "warning"
    assert "300 s ahead of" in found["clock"].detail
    assert found["handlers"].state == "failed"
    assert found["browser"].state == "warning"
    assert found["state"].state == "failed"


def test_doctor_says_what_a_refused_token_and_a_paused_agent_mean(server: StandIn, tmp_path: Path) -> None:
    server.fail_next(
        "me", acts=False, status=401, body=b'{"code": "unauthenticated"}', Content_Type="application/problem+json"
    )
    assert findings(server, tmp_path, no_browser(tmp_path))["token"].state == "failed"
    body = {"state": "paused", "note": "cable work", "claims": [], "server_time": server.stamp()}
    server.fail_next("me", acts=False, status=200, body=json.dumps(body).encode(), Content_Type="application/json")
    token = findings(server, tmp_path, no_browser(tmp_path))["token"]
    assert (token.state, "cable work" in token.detail) == ("warning", True)
    server.fail_next("me", acts=False, status=403, body=b"<html>", Content_Type="text/html")
    assert "proxy" in findings(server, tmp_path, no_browser(tmp_path))["token"].fix


def test_doctor_exits_with_one_when_the_server_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        path = token_file(tmp_path)
        result = invoke("doctor", "--server", url, "--token-file", str(path), "--state", str(tmp_path / "state"))
    assert result.exit_code == 1
    assert "failed   server:" in result.output
    assert "fix:" in result.output
    assert "ok       state:" in result.output


# validate and try


def spec_file(folder: Path, spec: object) -> str:
    path = folder / "spec.json"
    path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
    return str(path)


def test_a_good_spec_is_valid(tmp_path: Path) -> None:
    result = invoke("validate", spec_file(tmp_path, SPEC))
    assert (result.exit_code, "is a valid" in result.output) == (0, True), result.output


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "no JSON object"),
        ({**SPEC, "version": 7}, "/version"),
        ({**SPEC, "checks": [*SPEC["checks"], *SPEC["checks"]]}, "/checks/1"),  # type: ignore[misc] # same id twice
    ],
)
def test_a_bad_spec_is_told_where_and_why(tmp_path: Path, spec: object, complaint: str) -> None:
    result = invoke("validate", spec_file(tmp_path, spec))
    assert result.exit_code in (1, 2)
    assert complaint in result.output


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    result = invoke("try", str(tmp_path / "none.json"))
    assert (result.exit_code, "cannot be read" in result.output) == (2, True)


def test_a_spec_is_tried_without_a_server_of_ours(server: StandIn, tmp_path: Path) -> None:
    spec = {**SPEC, "target": {"base_url": server.url}}
    result = invoke("try", spec_file(tmp_path, spec), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "verdict pass" in result.output
    assert "health" in result.output
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name == ".scratch"] == []


def test_a_tried_spec_that_fails_exits_with_one(server: StandIn, tmp_path: Path) -> None:
    spec = json.loads(json.dumps({**SPEC, "target": {"base_url": server.url}}))
    spec["checks"][0]["steps"][0]["request"]["expect"]["status"] = 418
    result = invoke("try", spec_file(tmp_path, spec), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1, result.output
    assert "verdict fail" in result.output


def test_brackets_in_a_message_are_shown_as_they_are(server: StandIn, tmp_path: Path) -> None:
    spec = json.loads(json.dumps({**SPEC, "target": {"base_url": server.url}}))
    spec["checks"][0]["steps"][0]["request"]["expect"] = {"body_contains": "[/p]"}
    result = invoke("try", spec_file(tmp_path, spec), "--out", str(tmp_path / "out"))
    assert (result.exit_code, result.exception.__class__) == (1, SystemExit), result.output
    assert "[/p]" in result.output


PROBE = {"version": 1, "url": "http://127.0.0.1:8999/healthz", "expect": {"status": 200}}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, ""),
        ({"url": "ftp://127.0.0.1/"}, "/url"),
        ({"expect": {}}, "/expect"),
        ({"headers": {"X": "${secret:none}"}}, "/headers/X"),
        ({"surprise": 1}, "/"),
    ],
)
def test_the_spec_of_a_probe_is_checked_by_its_own_rules(
    tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    result = invoke("validate", "--kind", "http.probe", spec_file(tmp_path, PROBE | change))
    assert (result.exit_code, complaint in result.output) == (1 if change else 0, True), result.output
    assert change or "is a valid http.probe spec" in result.output


def test_a_probe_is_tried_without_a_server_of_ours(server: StandIn, tmp_path: Path) -> None:
    for status, code, verdict in ((200, 0, "pass"), (418, 1, "fail")):
        spec = PROBE | {"url": f"{server.url}/healthz", "expect": {"status": status}}
        result = invoke("try", "--kind", "http.probe", spec_file(tmp_path, spec), "--out", str(tmp_path / "out"))
        assert (result.exit_code, f"verdict {verdict}" in result.output) == (code, True), result.output


def test_a_kind_that_no_handler_does_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    for command in ("validate", "try"):
        result = invoke(command, "--kind", "video.edit", spec_file(tmp_path, {}))
        assert result.exit_code == 2
        assert "no handler for video.edit is installed; installed: backup.list, backup.maintenance," in result.output
