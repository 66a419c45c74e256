"""A corpus of hostile bodies against every call that reads JSON: always a clear 4xx, and nothing changes."""

import json
import uuid
from typing import Any

import pytest
from django.db import connection

from jobs.models import AuditEvent
from tests.api.runner_client import JOBS, TASKS, Held, Queue, Runner

NUL, HALF, REVERSED = "\\u0000", "\\ud800", "\\udc00\\ud800"
DEEP = 65

# Not a document at all: name → bytes, status, code
NO_DOCUMENT: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "malformed"),
    "white space": (b" \n", 400, "malformed"),
    "a list": (b"[]", 400, "invalid"),
    "null": (b"null", 400, "invalid"),
    "a number": (b"5", 400, "invalid"),
    "a text": (b'"x"', 400, "invalid"),
    "true": (b"true", 400, "invalid"),
    "cut": (b'{"claim_id": ', 400, "malformed"),
    "two documents": (b"{}{}", 400, "malformed"),
    "single quotes": (b"{'a': 1}", 400, "malformed"),
    "a comment": (b"{} // x", 400, "malformed"),
    "a trailing comma": (b'{"a": 1,}', 400, "malformed"),
    "a byte order mark": (b"\xef\xbb\xbf{}", 400, "malformed"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), 400, "malformed"),
    "UTF-16 without a mark": ('{"a": 1}'.encode("utf-16-le"), 400, "malformed"),
    "UTF-32": ('{"a": 1}'.encode("utf-32"), 400, "malformed"),
    "bad UTF-8": (b'{"a": "\xff"}', 400, "malformed"),
    "overlong UTF-8": (b'{"a": "\xc0\x80"}', 400, "malformed"),
    "a raw surrogate": (b'{"a": "\xed\xa0\x80"}', 400, "malformed"),
    "a raw NUL": (b'{"a": "\x00"}', 400, "malformed"),
    "a raw newline in a text": (b'{"a": "\n"}', 400, "malformed"),
    "NaN": (b'{"a": NaN}', 400, "malformed"),
    "Infinity": (b'{"a": [{"b": -Infinity}]}', 400, "malformed"),
    "1e999": (b'{"a": 1e999}', 400, "malformed"),
    "-1e999": (b'{"a": {"b": [-1e999]}}', 400, "malformed"),
    "an integer of 5,000 digits": (b'{"a": ' + b"9" * 5000 + b"}", 400, "malformed"),
    "a leading zero": (b'{"a": 01}', 400, "malformed"),
    "a duplicate key": (b'{"claim_id": "a", "claim_id": "b"}', 400, "duplicate_key"),
    "a duplicate key within": (b'{"a": [{"b": 1, "\\u0062": 2}]}', 400, "duplicate_key"),
    "a duplicate key of half a surrogate": (b'{"\\ud800": 1, "\\ud800": 2}', 400, "duplicate_key"),
    "too deep, lists": (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", 400, "too_deep"),
    "too deep, objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400, "too_deep"),
    "far too deep": (b"[" * 50_000, 400, "too_deep"),
    "many texts": (b'{"a":["' + b'\\"' * 20_000 + b'"', 400, "malformed"),
}


def target(call: str, runner: Runner) -> tuple[str, str, Held | None]:
    """The method and address of a call, and the row that it would change."""
    if call.endswith("/claim"):
        return "POST", call, None
    queue = JOBS if call.startswith("jobs/") else TASKS
    held = queue.held(runner)
    verb = call.rpartition("/")[2]
    return ("PUT" if verb == "result" else "POST"), f"{held.path}/{verb}", held


CALLS = (
    "jobs/claim", "tasks/claim", "jobs/{}/heartbeat", "tasks/{}/heartbeat", "tasks/{}/start", "jobs/{}/result",
    "tasks/{}/result",
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_document_is_refused_everywhere(runner: Runner, call: str) -> None:
    method, path, held = target(call, runner)
    before = held and held.queue.model.objects.filter(pk=held.row.pk).values().get()
    for name, (body, status, code) in NO_DOCUMENT.items():
        answer = runner.send(method, path, body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (name, answer.content)
    assert before is None or before == held.queue.model.objects.filter(pk=held.row.pk).values().get()  # type: ignore[union-attr]


WRONG_IDS = [
    "null", "5", "true", "[]", "{}", '""', '"x"', f'"{NUL}"', f'"{HALF}"', '"6b2c5f0e7c1d4f449d0c0a4c1f1d2e3f"',
    '"{6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f}"', '"urn:uuid:6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f"',
    '"6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3f\\n"', '"6b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3g"', '["6b2c5f0e"]',
    '"\\u0666b2c5f0e-7c1d-4f44-9d0c-0a4c1f1d2e3"',
]  # fmt: skip
TEXTS = ["5", "true", "[]", "{}", '""', '"  "', f'"{NUL}"', f'"a{HALF}"', f'"{REVERSED}"', f'"{"x" * 2001}"']

# call → pointer of a member → JSON of values that are wrong there
WRONG: dict[str, dict[str, list[str]]] = {
    "jobs/claim": {
        "/claim_id": WRONG_IDS,
        "/job_id": WRONG_IDS[1:],
        "/kinds": ["null", "5", "true", "{}", '"echo"', "[]", json.dumps(["x"] * 101)],
        "/kinds/0": [f"[{text}]" for text in ["null", *TEXTS]],
        "/capabilities": ["5", "{}", '"x"', json.dumps(["x"] * 101)],
        "/capabilities/1": [f'["x", {text}]' for text in ["null", *TEXTS]],
        "/runner": ["null", "5", "[]", '"x"'],
        "/runner/name": [json.dumps({"version": "1"})]
        + [f'{{"name": {text}, "version": "1"}}' for text in ["null", *TEXTS]],
        "/runner/version": [f'{{"name": "r", "version": {text}}}' for text in ["null", *TEXTS]],
        "/run_ref": TEXTS,
    },
    "tasks/claim": {
        "/claim_id": WRONG_IDS,
        "/task_id": WRONG_IDS[1:],
        "/task_types": ["null", "[]", '"backup"'],
        "/task_types/0": [f"[{text}]" for text in TEXTS],
    },
    "jobs/{}/heartbeat": {"/claim_id": WRONG_IDS, "/progress": ["5", "[]", '"x"', "true"]},
    "tasks/{}/start": {"/claim_id": WRONG_IDS},
    "tasks/{}/heartbeat": {
        "/claim_id": WRONG_IDS,
        "/progress": ["5", "[]"],
        "/counters": ["5", "[]", '"x"'],
        **{
            f"/counters/{name}": [
                f'{{"{name}": {value}}}'
                for value in ("-1", str(2**63), "5.9", "5.0", "true", '"7"', "[]", "1" + "0" * 400)
            ]
            for name in ("bytes_processed", "bytes_written", "files_processed", "files_skipped")
        },
    },
    "jobs/{}/result": {
        "/claim_id": WRONG_IDS,
        "/status": ["null", "5", "[]", '"succeeded"', '"queued"', '"running"', '"Done"', '""', f'"{NUL}"', "{}"],
        "/verdict": ["5", "[]", '"PASS"', '"passed"', '""', f'"{NUL}"', "{}", "false"],
        "/results": ["5", "[]", '"x"', "true"],
        "/error": ["5", "[]", "{}", "true"],
        "/failure_class": ["5", "[]", "{}", "true"],
        "/details": ["5", "[]", '"x"'],
    },
    "tasks/{}/result": {
        "/claim_id": WRONG_IDS,
        "/status": ["null", '"done"', '"pending"', '"claimed"', '"running"'],
        "/counters/files_skipped": ['{"files_skipped": -1}', '{"files_skipped": true}'],
        "/backup_id_in_repository": ["5", "[]"],
        "/error_code": ["5", "{}"],
        "/error": ["5"],
    },
}


def right(call: str, held: Held | None, runner: Runner) -> dict[str, Any]:
    if held is None:
        return runner.claim_body(JOBS if call.startswith("jobs/") else TASKS)
    more = held.queue.result() if call.endswith("result") else {}
    return {"claim_id": held.claim_id} | more


@pytest.mark.parametrize(("call", "pointer"), [(call, pointer) for call, places in WRONG.items() for pointer in places])
def test_a_wrong_member_is_named(runner: Runner, call: str, pointer: str) -> None:
    method, path, held = target(call, runner)
    before = held and held.queue.model.objects.filter(pk=held.row.pk).values().get()
    member = pointer.split("/")[1]
    for value in WRONG[call][pointer]:
        members = {name: json.dumps(part) for name, part in right(call, held, runner).items()} | {member: value}
        body = "{" + ", ".join(f'"{name}": {part}' for name, part in members.items()) + "}"
        answer = runner.send(method, path, body.encode())
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), (value, answer.content)
        assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer], value
    assert before is None or before == held.queue.model.objects.filter(pk=held.row.pk).values().get()  # type: ignore[union-attr]


def test_every_fault_is_named_at_once(runner: Runner) -> None:
    answer = runner.send("POST", "jobs/claim", {"kinds": [1, "", "ok"], "job_id": 5, "runner": {"name": 7}})
    pointers = [fault["pointer"] for fault in answer.json()["errors"]]
    assert pointers == ["/claim_id", "/kinds/0", "/kinds/1", "/job_id", "/runner/name", "/runner/version"]


def test_members_that_nobody_asks_for_are_tolerated(runner: Runner, queue: Queue) -> None:
    more = {"later": {"deep": [1, "\x00"]}, "\ud800": 1, "a/b~c": None}
    held = queue.held(runner)
    answer = runner.send("POST", f"{queue.path}/claim", runner.claim_body(queue) | more)
    assert answer.status_code in (204, 409)
    assert held.beat(**more).status_code == 200
    assert held.finish(**more).status_code == 200


def test_a_text_of_any_script_passes(runner: Runner) -> None:
    name = "рыба 🐟 \u202e\x1b[2J\r\n' OR 1=1 --"
    row = JOBS.make(runner.agent)
    JOBS.model.objects.filter(pk=row.pk).update(kind=name)
    answer = runner.claim(JOBS, kinds=[name], runner={"name": name, "version": name}, run_ref=name)
    assert (answer.status_code, answer.json()["kind"]) == (201, name)
    assert JOBS.model.objects.get(pk=row.pk).run_ref == name


UNSTORABLE = [NUL, HALF, REVERSED, f"a{NUL}b", "\\udfff"]


@pytest.mark.parametrize("text", UNSTORABLE)
@pytest.mark.parametrize(
    "member",
    [
        '"error": "{}"', '"details": {{"{}": 1}}', '"details": {{"a": ["{}"]}}', '"failure_class": "{}"',
        '"error": "{}", "failure_class": "transient"',
    ],
)  # fmt: skip
def test_a_failure_with_unstorable_characters_is_stored_and_flagged(
    runner: Runner, queue: Queue, member: str, text: str
) -> None:
    held = queue.held(runner)
    body = f'{{"claim_id": "{held.claim_id}", "status": "failed", {member.format(text)}}}'
    answer = runner.send("PUT", f"{held.path}/result", body.encode())
    assert (answer.status_code, answer.json()["status"]) == (200, "failed"), answer.content
    row = held.stored()
    assert row.details["sanitised"] is True
    assert "\N{REPLACEMENT CHARACTER}" in json.dumps(
        [row.details, getattr(row, row.lifecycle.error)], ensure_ascii=False
    )


@pytest.mark.parametrize("text", UNSTORABLE)
def test_results_and_words_with_unstorable_characters_are_stored(runner: Runner, text: str) -> None:
    job, task = JOBS.held(runner), TASKS.held(runner)
    body = f'{{"claim_id": "{job.claim_id}", "status": "done", "results": {{"{text}": [{{"a": "{text}"}}]}}}}'
    assert runner.send("PUT", f"{job.path}/result", body.encode()).status_code == 200
    assert "\N{REPLACEMENT CHARACTER}" in json.dumps(job.stored().results, ensure_ascii=False)
    body = (
        f'{{"claim_id": "{task.claim_id}", "status": "failed", "error_code": "{text}",'
        f' "backup_id_in_repository": "{text}"}}'
    )
    assert runner.send("PUT", f"{task.path}/result", body.encode()).status_code == 200
    assert "\N{REPLACEMENT CHARACTER}" in task.stored().error_code


@pytest.mark.parametrize("text", UNSTORABLE)
def test_progress_with_unstorable_characters_is_stored(runner: Runner, queue: Queue, text: str) -> None:
    held = queue.held(runner)
    body = f'{{"claim_id": "{held.claim_id}", "progress": {{"title": "{text}", "{text}": 1}}}}'
    assert runner.send("POST", f"{held.path}/heartbeat", body.encode()).status_code == 200
    assert "\N{REPLACEMENT CHARACTER}" in held.stored().progress["title"]


def test_late_evidence_with_unstorable_characters_is_kept(runner: Runner) -> None:
    held = JOBS.held(runner)
    JOBS.model.objects.filter(pk=held.row.pk).update(
        status="failed", ended_by="reaper", error="x", failure_class="lost"
    )
    body = f'{{"claim_id": "{held.claim_id}", "status": "failed", "failure_class": "{NUL}", "error": "{HALF}"}}'
    assert runner.send("PUT", f"{held.path}/result", body.encode()).status_code == 409
    assert AuditEvent.objects.filter(subject_id=held.row.pk, tag="late_result").count() == 1


def test_progress_is_limited(runner: Runner, queue: Queue) -> None:
    held = queue.held(runner)
    answer = held.beat(progress={"title": "x" * 9000})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/progress")
    assert held.beat(progress={"title": "x" * 8000}).status_code == 200


def test_numbers_come_back_digit_for_digit(runner: Runner) -> None:
    number = 10**900 + 7
    held = JOBS.held(runner, spec={"n": number, "small": 2**53 + 1})
    assert held.repeat_claim().json()["spec"] == {"n": number, "small": 2**53 + 1}


@pytest.mark.parametrize(
    "spec", ['{"n": 1e400}', '{"n": -1e400, "a": [1e999]}', f'{{"n": {"9" * 5000}}}', '"text"', "[]", "null"]
)
def test_a_spec_that_plain_sql_stored_stops_no_queue(runner: Runner, spec: str) -> None:
    row = JOBS.make(runner.agent)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agent_jobs SET spec = %s::jsonb, labels = %s::jsonb WHERE id = %s", [spec, spec, row.pk])
    answer = runner.claim(JOBS)
    assert (answer.status_code, answer.json()["id"]) == (201, str(row.pk))
    body = {"claim_id": answer.json()["claim_id"], "status": "failed", "error": "cannot be read"}
    assert runner.send("PUT", f"jobs/{row.pk}/result", body).status_code == 200


def test_a_claim_id_is_free_of_its_case(runner: Runner) -> None:
    JOBS.make(runner.agent)
    claim_id = str(uuid.uuid4())
    first = runner.claim(JOBS, claim_id=claim_id.upper())
    assert first.json()["claim_id"] == claim_id
