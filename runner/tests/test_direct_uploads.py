"""Large files go straight to the storage where the server lets them, and through the server where it does not."""

from pathlib import Path
from typing import Any

import pytest
from agentstore_runner import direct_uploads
from agentstore_runner.claiming import Exit
from harness import Runner
from standin import StandIn, refusal
from test_delivery import attach

DIRECT = ["begin_upload", "bucket", "complete_upload"]
LEAST = 300 * 1024  # more than one chunk, and sooner written than the real 16 MiB


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_uploads, "LEAST", LEAST)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    path = tmp_path / "video.webm"
    path.write_bytes(bytes(range(256)) * (LEAST // 256))
    return path


def uploads(server: StandIn) -> list[str]:
    return [name for name in server.names() if name in {"artifact", *DIRECT}]


def test_a_large_file_goes_straight_to_the_storage_without_the_token(
    server: StandIn, runner: Runner, video: Path
) -> None:
    row = server.add()
    attach(runner, video)

    assert runner.run() == Exit.OK

    assert uploads(server) == DIRECT
    assert row.artifacts == {"shot.png": video.read_bytes()}
    [put] = server.called("bucket")
    assert "authorization" not in put.headers
    assert "transfer-encoding" not in put.headers
    assert "details" not in row.result


def test_a_file_one_byte_smaller_goes_through_the_server(server: StandIn, runner: Runner, video: Path) -> None:
    video.write_bytes(video.read_bytes()[1:])
    row = server.add()
    attach(runner, video)

    assert runner.run() == Exit.OK

    assert uploads(server) == ["artifact"]
    assert row.artifacts == {"shot.png": video.read_bytes()}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(409, "direct_unavailable", id="the server keeps its files in a folder"),
        pytest.param(404, "not_found", id="the server is older than the call"),
    ],
)
def test_a_large_file_goes_through_a_server_that_takes_none_directly(
    server: StandIn, runner: Runner, video: Path, status: int, code: str
) -> None:
    row = server.add()
    server.refuse_uploads = lambda name: refusal(status, code)
    attach(runner, video)

    assert runner.run() == Exit.OK

    assert uploads(server) == ["begin_upload", "artifact"]
    assert row.artifacts == {"shot.png": video.read_bytes()}
    assert "details" not in row.result


@pytest.mark.parametrize(
    ("status", "code"), [(413, "too_large"), (409, "artifact_mismatch"), (400, "invalid"), (410, "ended")]
)
def test_a_large_file_that_is_refused_becomes_a_note_and_is_not_sent_through_the_server_either(
    server: StandIn, runner: Runner, video: Path, status: int, code: str
) -> None:
    row = server.add()
    server.refuse_uploads = lambda name: refusal(status, code)
    attach(runner, video)

    assert runner.run() == Exit.OK

    assert uploads(server) == ["begin_upload"]
    [note] = row.result["details"]["artifact_notes"]
    assert code in note["problem"]


def test_a_large_file_that_the_job_has_already_is_not_sent_again(server: StandIn, runner: Runner, video: Path) -> None:
    row = server.add(artifacts={"shot.png": video.read_bytes()})
    attach(runner, video)

    assert runner.run() == Exit.OK

    assert uploads(server) == ["begin_upload"]
    assert "details" not in row.result


@pytest.mark.parametrize(
    ("call", "fault", "again"),
    [
        pytest.param("begin_upload", {"acts": True, "how": "drop"}, DIRECT, id="the permission is lost"),
        pytest.param(
            "begin_upload", {"acts": False, "status": 201, "body": b'{"upload": "u"}'}, DIRECT, id="no address"
        ),
        pytest.param("bucket", {"acts": False, "status": 503}, DIRECT, id="the storage is away"),
        pytest.param("bucket", {"acts": False, "status": 403}, DIRECT, id="the address has lapsed"),
        pytest.param("bucket", {"acts": False, "status": 307, "Location": "/"}, DIRECT, id="the storage redirects"),
        pytest.param("bucket", {"acts": False, "how": "drop"}, DIRECT, id="the bytes are lost"),
        pytest.param("bucket", {"acts": False, "status": 200}, DIRECT, id="a portal takes the bytes"),
        pytest.param("complete_upload", {"acts": False, "status": 503}, DIRECT, id="the database is away"),
        pytest.param("complete_upload", {"acts": True, "how": "drop"}, DIRECT[:1], id="the last answer is lost"),
        pytest.param(
            "complete_upload", {"acts": False, "status": 201, "body": b'{"sha256": "0"}'}, DIRECT, id="other bytes"
        ),
    ],
)
def test_a_direct_upload_is_repeated_until_the_server_has_the_file(
    server: StandIn, runner: Runner, video: Path, call: str, fault: dict[str, Any], again: list[str]
) -> None:
    row = server.add()
    server.fail_next(call, **fault)
    attach(runner, video)

    assert runner.run() == Exit.OK

    assert uploads(server)[-len(again) :] == again
    assert uploads(server).count("begin_upload") == 2
    assert "artifact" not in uploads(server)
    assert row.artifacts == {"shot.png": video.read_bytes()}
    assert "details" not in row.result
