"""The decision tables, on what restic 0.14 and 0.18 really printed."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.backup.outcome import Facts, Outcome, of_backup, of_restore
from agentstore_runner.backup.output import Output
from agentstore_runner.contract.backup_words import FAILURE_CLASSES, error_code_known
from expected_outcomes import EMPTY_PLANS, PLANNED_FILES, expected
from hypothesis import given, settings
from hypothesis import strategies as st

CAPTURES = [
    json.loads(line) for line in Path(__file__).with_name("restic_captures.jsonl").read_text("utf-8").splitlines()
]
ID = "a" * 64


def facts(capture: dict[str, Any]) -> Facts:
    case = capture["case"]
    planned = 0 if case in EMPTY_PLANS else PLANNED_FILES.get(case.split(".")[0], 0)
    output = Output(folder="/srv/lab")
    for line in capture["stdout"]:
        output.take(line, complaint=False)
    for line in capture["stderr"]:
        output.take(line, complaint=True)
    stopped = {"admin": "cancel", "shutdown": "shutdown", None: None}[capture["signalled"]]
    return Facts(capture["code"], output, stopped, planned=planned, planned_bytes=planned * 500_000)


def decide(capture: dict[str, Any]) -> Outcome:
    return (of_backup if capture["kind"] == "backup" else of_restore)(facts(capture))


def outcome(name: str, version: str) -> Outcome:
    return decide(next(c for c in CAPTURES if (c["case"], c["restic"]) == (name, version)))


def by_name() -> list[Any]:
    return [pytest.param(capture, id=f"{capture['case']}-{capture['restic']}") for capture in CAPTURES]


@pytest.mark.parametrize("capture", by_name())
def test_a_captured_run_is_called_what_the_tables_say(capture: dict[str, Any]) -> None:
    found = decide(capture)

    said = (found.status, found.cause and found.cause.failure_class, found.code)
    assert said == expected()[capture["case"], capture["restic"]]
    assert found.status in ("succeeded", "cancelled") or found.message
    assert "\x1b" not in (found.message or "")
    assert all(isinstance(count, int) and 0 <= count < 2**63 for count in found.counters.values())
    assert (found.status == "succeeded") <= (found.counters["files_skipped"] == 0)
    assert (found.status == "partial_failure") <= (found.counters["files_skipped"] > 0)


def test_every_case_has_an_expected_outcome_and_nothing_else_has() -> None:
    assert {(capture["case"], capture["restic"]) for capture in CAPTURES} == set(expected())


@pytest.mark.parametrize(
    ("case", "version", "counters", "exact"),
    [
        ("extra.compress", "0.14.0", (60_000_000, 60_001_818, 3, 0), False),
        ("extra.compress", "0.18.0", (60_000_000, 8_146, 3, 0), True),
        ("basic.unreadable", "0.14.0", (12_000_011, 1_052, 41, 2), False),
        ("basic.missing_source", "0.18.0", (12_000_011, 0, 41, 3), True),
        ("signals.clean_missing", "0.14.0", (None, 16_760, 3, 1), False),
        ("restore.restore_enospc", "0.18.0", (10_000_000, 10_000_000, 8, 14), True),
        ("storage.restore_missingpack", "0.18.0", (49_296_565, 49_296_565, 25, 7), True),
        ("restore.restore_again", "0.18.0", (10_000_000, 0, 22, 0), True),
        ("restore.restore_ok", "0.14.0", (10_000_000, 10_000_000, 20, 0), True),
        ("target.restore_nonemptydir_in_place", "0.18.0", (10_000_000, 10_000_000, 21, 1), True),
    ],
)
def test_the_columns_hold_what_the_mapping_says(
    case: str, version: str, counters: tuple[int | None, ...], exact: bool
) -> None:
    found = outcome(case, version)

    names = ("bytes_processed", "bytes_written", "files_processed", "files_skipped")
    for name, count in zip(names, counters, strict=True):
        assert count is None or found.counters[name] == count, name
    assert found.exact is exact


def said(*lines: str) -> Output:
    output = Output()
    for line in lines:
        output.take(line, complaint=True)
    return output


SUMMARY = json.dumps({"message_type": "summary", "total_files_processed": 2, "data_added": 7, "snapshot_id": ID})
EMPTY = json.dumps({"message_type": "summary", "snapshot_id": ID})


@pytest.mark.parametrize(
    ("given_facts", "status", "code"),
    [
        # A summary with an id counts whatever the code of the interrupt was: the snapshot exists.
        (Facts(130, said(SUMMARY), "cancel"), "succeeded", None),
        (Facts(1, said(SUMMARY), "shutdown"), "succeeded", None),
        (Facts(130, said(SUMMARY)), "succeeded", None),
        (Facts(1, said(), "deadline"), "failed", "max_runtime"),
        (Facts(1, said(), "stalled"), "failed", "stalled"),
        (Facts(1, said(), "lease"), "failed", "heartbeat_lost"),
        (Facts(-9, said(), "cancel"), "cancelled", "cancelled_by_admin"),
        (Facts(0, said(EMPTY), allow_empty=True), "succeeded", None),
        (Facts(3, said(EMPTY), allow_empty=True), "failed", "source_unreadable"),
        (Facts(3, said(SUMMARY)), "partial_failure", "source_unreadable"),
        (Facts(0, said(SUMMARY), missing=["/gone"]), "partial_failure", "source_missing"),
        (
            Facts(0, said("/gone does not exist, skipping", SUMMARY), missing=["/gone"]),
            "partial_failure",
            "source_missing",
        ),
        (Facts(0, said(), found=ID), "succeeded", None),
        (Facts(0, said()), "failed", "no_summary"),
        (Facts(137, said()), "failed", "killed"),
        (Facts(-15, said()), "failed", "killed"),
        (Facts(1, said("Fatal: unable to save snapshot: context canceled")), "failed", "killed"),
        (Facts(77, said("something new")), "failed", "restic_exit_77"),
        (Facts(1, said(SUMMARY, "Fatal: something new")), "failed", "restic_exit_1"),
    ],
)
def test_a_backup_is_judged_by_the_first_row_that_matches(given_facts: Facts, status: str, code: str | None) -> None:
    found = of_backup(given_facts)

    assert (found.status, found.code) == (status, code)


def test_a_snapshot_of_a_failed_backup_stays_as_evidence() -> None:
    assert of_backup(Facts(1, said(SUMMARY, "Fatal: something new"))).snapshot == ID


def test_the_same_missing_path_counts_once_however_it_was_noticed() -> None:
    found = of_backup(Facts(0, said("/gone does not exist, skipping", SUMMARY), missing=["/gone"]))

    assert found.counters["files_skipped"] == 1


@pytest.mark.parametrize(
    ("given_facts", "status", "code"),
    [
        (Facts(130, said(), "cancel", planned=5), "cancelled", "cancelled_by_admin"),
        (Facts(0, said(), "cancel", planned=5), "succeeded", None),
        (Facts(0, said(), planned=0), "failed", "nothing_matched"),
        (Facts(1, said("ignoring error for /a: boom"), planned=1), "failed", "restore_incomplete"),
        (Facts(1, said("ignoring error for /a: boom"), planned=2), "partial_failure", "restore_incomplete"),
        (Facts(0, said("ignoring error for /a: boom"), planned=2), "partial_failure", "restore_incomplete"),
        (
            Facts(1, said("ignoring error for /a: Unexpected content in /t/a, starting at offset 0"), planned=2),
            "partial_failure",
            "verify_mismatch",
        ),
        (Facts(-9, said(), planned=5), "failed", "killed"),
    ],
)
def test_a_restore_is_judged_by_the_first_row_that_matches(given_facts: Facts, status: str, code: str | None) -> None:
    found = of_restore(given_facts)

    assert (found.status, found.code) == (status, code)


def test_a_path_with_a_colon_is_told_from_its_cause_by_the_plan() -> None:
    output = Output(paths={"/a: b", "/a"})
    output.take("ignoring error for /a: b: permission denied", complaint=True)

    assert output.items == {"/a: b": "permission denied"}


def test_the_message_leaves_out_stack_traces_and_escape_sequences() -> None:
    output = said(
        "\x1b[2KFatal: broken\x07",
        "github.com/restic/restic/internal/errors.Fatalf(0xc000)",
        "\t/usr/src/restic/errors.go:21",
        "main.main()",
    )

    assert output.message == "Fatal: broken\N{REPLACEMENT CHARACTER}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "error",
    "item",
    "during",
    "message",
    "code",
    "snapshot_id",
    "total_files_processed",
    "files_restored",
    "dry_run",
)
MESSAGES = st.builds(
    lambda kind, more: json.dumps({**more, "message_type": kind}),
    st.sampled_from(["status", "summary", "error", "exit_error", "verbose_status", "new"]) | JSON,
    st.dictionaries(st.sampled_from(NAMES), JSON),
)
LINES = st.lists(st.tuples(MESSAGES | st.text() | st.just("ignoring error for "), st.booleans()), max_size=12)


@settings(max_examples=60)
@given(LINES, st.integers(-64, 300), st.sampled_from([None, "cancel", "shutdown", "lease", "deadline", "stalled"]))
def test_nothing_that_restic_could_print_stops_the_reader_or_the_decision(
    lines: list[tuple[str, bool]], code: int, stopped: str | None
) -> None:
    output = Output()
    for line, complaint in lines:
        output.take(line, complaint=complaint)

    for decided in (of_backup, of_restore):
        found = decided(Facts(code, output, stopped, planned=3))
        assert found.code is None or error_code_known(found.code)
        assert found.cause is None or found.cause.failure_class in FAILURE_CLASSES
        assert all(0 <= count < 2**63 for count in found.counters.values())
        assert (found.status == "succeeded") <= (found.counters["files_skipped"] == 0)
        assert (found.status == "failed") <= (found.cause is not None)
