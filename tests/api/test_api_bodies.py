"""Bodies as they come over the wire: lengths that lie or are missing, other media types, encodings and sizes."""

import io
import json
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from jobs.api.limits import SMALL_BODY
from tests.api.runner_client import JOBS, TASKS, Queue, Runner, judge


class Wire(io.BytesIO):
    """A request body that remembers how much of it was read."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(size)
        self.taken += len(part)
        return part


class Cut(io.BytesIO):
    """A connection that breaks."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise ConnectionResetError("gone")


class Endless(io.RawIOBase):
    """A chunked body that never ends."""

    taken = 0

    def read(self, size: int = -1, /) -> bytes:
        assert size > 0, "read without a limit"
        self.taken += size
        return b" " * size


def wire(runner: Runner, stream: Any, **environ: Any) -> tuple[int, dict[str, Any]]:
    """Claim a job with the WSGI environment's headers and stream exactly as given."""
    environment = {
        "REQUEST_METHOD": "POST", "PATH_INFO": CLAIM, "wsgi.input": stream, "CONTENT_TYPE": "application/json",
        "HTTP_AUTHORIZATION": f"Bearer {runner.bearer}",
    } | environ  # fmt: skip
    answer = Client(raise_request_exception=False).request(**environment)
    judge("POST", CLAIM, answer)
    return answer.status_code, json.loads(answer.content) if answer.content else {}


CLAIM = "/api/v1/jobs/claim"


def test_a_body_above_the_limit_is_refused_before_a_byte_is_read(runner: Runner) -> None:
    stream = Wire(b" " * (SMALL_BODY + 1))
    status, body = wire(runner, stream, CONTENT_LENGTH=str(SMALL_BODY + 1))
    assert (status, body["code"], body["limit"]) == (413, "too_large", SMALL_BODY)
    assert stream.taken == 0


def test_an_absurd_length_is_too_large(runner: Runner) -> None:
    assert wire(runner, Wire(), CONTENT_LENGTH="9" * 5000)[0] == 413


@pytest.mark.parametrize("length", ["-1", "abc", "1.5", "0x10", "\u0665", "1 0"])
def test_a_length_that_is_no_number_is_refused(runner: Runner, length: str) -> None:
    status, body = wire(runner, Wire(b"{}"), CONTENT_LENGTH=length)
    assert (status, body["code"]) == (400, "invalid_length")


def test_a_body_shorter_than_its_length_is_incomplete(runner: Runner) -> None:
    text = json.dumps(runner.claim_body(JOBS)).encode()
    status, body = wire(runner, Wire(text), CONTENT_LENGTH=str(len(text) + 1))
    assert (status, body["code"]) == (400, "incomplete")


def test_a_connection_that_breaks_is_incomplete(runner: Runner) -> None:
    status, body = wire(runner, Cut(), CONTENT_LENGTH="10")
    assert (status, body["code"]) == (400, "incomplete")


def test_bytes_after_the_length_are_not_read(runner: Runner) -> None:
    text = json.dumps(runner.claim_body(JOBS)).encode()
    stream = Wire(text + b"POST /evil")
    assert wire(runner, stream, CONTENT_LENGTH=str(len(text)))[0] == 204
    assert stream.taken == len(text)


def test_a_chunked_body_is_read_where_the_server_marks_its_end(runner: Runner) -> None:
    text = json.dumps(runner.claim_body(JOBS)).encode()
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    assert wire(runner, Wire(text), **chunked)[0] == 204


def test_a_chunked_body_that_never_ends_is_cut_off_at_the_limit(runner: Runner) -> None:
    stream = Endless()
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    status, body = wire(runner, stream, **chunked)
    assert (status, body["limit"]) == (413, SMALL_BODY)
    assert stream.taken == SMALL_BODY + 1


def test_a_chunked_body_without_a_marked_end_needs_a_length(runner: Runner) -> None:
    status, body = wire(runner, Endless(), HTTP_TRANSFER_ENCODING="chunked")
    assert (status, body["code"]) == (411, "length_required")


def test_a_request_without_any_body_is_malformed(runner: Runner) -> None:
    status, body = wire(runner, Endless())
    assert (status, body["code"]) == (400, "malformed")


def test_two_authorization_headers_and_odd_header_bytes_are_refused(runner: Runner) -> None:
    both = f"Bearer {runner.bearer},Bearer {runner.bearer}"
    latin = b"Bearer \xff\xfe\x80".decode("latin-1")
    for header in (both, latin):
        assert wire(runner, Wire(), HTTP_AUTHORIZATION=header)[0] == 401


@pytest.mark.parametrize("path", ["agents/me", "agents/me/", "jobs"])
def test_a_forged_host_is_never_answered_with_a_page(runner: Runner, path: str) -> None:
    answer = runner.send("GET", path, HTTP_HOST="evil.example")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize("accept", ["text/html", "*/*;q=0", "application/xml", ',"' * 20_000, "\x00", ""])
def test_whatever_is_accepted_the_answer_is_json(runner: Runner, accept: str) -> None:
    answer = runner.send("GET", "agents/me", HTTP_ACCEPT=accept)
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")


MEDIA_TYPES = {
    "": 415,
    "text/plain": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=x": 415,
    "application/jsonp": 415,
    "application/json; charset=utf-16": 415,
    "application/json; charset=base64": 415,
    "application/json; charset=latin-1": 415,
    "json": 415,
    "application/json, application/json": 415,
    "\x00": 415,
    "APPLICATION/JSON": 204,
    "application/json;charset=UTF-8": 204,
    'application/json; charset="utf-8"': 204,
    "application/json; version=1": 204,
}


@pytest.mark.parametrize(("media_type", "status"), MEDIA_TYPES.items())
def test_only_json_in_utf8_is_read(runner: Runner, media_type: str, status: int) -> None:
    body = runner.claim_body(JOBS)
    answer = runner.send("POST", "jobs/claim", body, content_type=media_type)
    assert answer.status_code == status
    if status == 415:
        assert answer.json()["code"] == "unsupported_media_type"


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip", "x"])
def test_a_compressed_body_is_refused(runner: Runner, encoding: str) -> None:
    answer = runner.send("POST", "jobs/claim", runner.claim_body(JOBS), HTTP_CONTENT_ENCODING=encoding)
    assert answer.status_code == 415


def test_a_result_may_be_large_and_not_larger(runner: Runner, queue: Queue) -> None:
    limit = settings.JSON_BODY_BYTES
    held = queue.held(runner)
    body = {"claim_id": held.claim_id} | queue.result(error="x" * 10)
    text = json.dumps(body).encode()
    assert runner.send("PUT", f"{held.path}/result", text + b" " * (limit + 1 - len(text))).json()["limit"] == limit
    assert runner.send("PUT", f"{held.path}/result", text + b" " * (limit - len(text))).status_code == 200


@pytest.mark.parametrize("path", ["jobs/claim", "tasks/claim"])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD", "TRACE"])
def test_other_methods_are_refused_and_named(runner: Runner, path: str, method: str) -> None:
    answer = runner.send(method, path)
    assert (answer.status_code, answer["Allow"]) == (405, "POST, OPTIONS")


def test_options_names_the_methods_and_nothing_of_other_origins(runner: Runner) -> None:
    answer = runner.send("OPTIONS", "agents/me", HTTP_ORIGIN="https://evil.example")
    assert (answer.status_code, answer["Allow"], answer.content) == (204, "GET, HEAD, OPTIONS", b"")
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_head_is_get_without_a_body(runner: Runner) -> None:
    assert (runner.send("HEAD", "agents/me").status_code, runner.send("HEAD", "agents/me").content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "", "nothing", "jobs", "jobs/", "jobs/claim/", "jobs/x/heartbeat", "jobs/%00/heartbeat", "jobs/a%0ab/result",
        "jobs/6B2C5F0E-7C1D-4F44-9D0C-0A4C1F1D2E3F/heartbeat", "jobs/../agents/me", "tasks/%ff/start", "x" * 10_000,
        "jobs/6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f/heartbeat%0a", "agents/me%0a",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_an_address_that_nobody_has_is_a_problem_for_anyone(runner: Runner, method: str, path: str) -> None:
    for bearer in (f"Bearer {runner.bearer}", ""):
        answer = runner.send(method, path, {}, HTTP_AUTHORIZATION=bearer)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "query", ["?a=%00", "?a=%ff%fe", "?" + "x" * 10_000, "?kinds=a&kinds=b", "?format=xml", "?_=%0d%0a"]
)
def test_a_query_string_changes_nothing(runner: Runner, query: str) -> None:
    assert runner.send("GET", f"agents/me{query}").status_code == 200
    assert runner.send("POST", f"tasks/claim{query}", runner.claim_body(TASKS)).status_code == 204
