"""Renderings of a results document for other tools: CTRF and JUnit. They are exports, never the stored form."""

import mimetypes
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from xml.etree import ElementTree as ET

CTRF_VERSION: Final = "0.0.0"
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# CTRF knows no error: a check that could not be evaluated is "other", with its own word beside it.
_CTRF_STATUS: Final = {"passed": "passed", "failed": "failed", "skipped": "skipped", "error": "other"}


def ctrf(document: Mapping[str, Any], *, run_id: str) -> dict[str, Any]:
    """Return a valid results document as a report of the Common Test Report Format; `run_id` names the run (a UUID)."""
    checks = document["checks"]
    counts = Counter(_CTRF_STATUS[check["status"]] for check in checks)
    start, stop = _milliseconds(document["started_at"]), _milliseconds(document["finished_at"])
    return {
        "reportFormat": "CTRF",
        "specVersion": CTRF_VERSION,
        "reportId": run_id,
        "timestamp": document["finished_at"],
        "generatedBy": "agentstore",
        "results": {
            "tool": {"name": document["runner"]["name"], "version": document["runner"]["version"]},
            "summary": {
                "tests": len(checks),
                **{word: counts[word] for word in ("passed", "failed", "skipped", "pending", "other")},
                "flaky": sum(check["flaky"] for check in checks),
                "start": start,
                "stop": stop,
                "duration": max(stop - start, 0),
                "extra": {
                    "agentstore:verdict": document["verdict"],
                    "agentstore:reasons": document["reasons"],
                    "agentstore:kind": document["kind"],
                },
            },
            "tests": [_test(check, document["runner"]["browser"]) for check in checks],
            "environment": {
                **_present(testEnvironment=document["target"]["environment"]),
                "extra": {
                    "agentstore:base_url": document["target"]["base_url"],
                    **_present(**{"agentstore:test_marker": document["test_marker"]}),
                },
            },
        },
    }


def junit(document: Mapping[str, Any], *, run_id: str) -> bytes:
    """Return a valid results document as JUnit XML in UTF-8: one suite, one case a check, severities as properties."""
    checks = document["checks"]
    seconds = (_milliseconds(document["finished_at"]) - _milliseconds(document["started_at"])) / 1000
    counts = Counter(check["status"] for check in checks)
    numbers = {
        "tests": len(checks), "failures": counts["failed"], "errors": counts["error"], "skipped": counts["skipped"],
    }  # fmt: skip
    totals = {name: str(number) for name, number in numbers.items()} | {"time": f"{max(seconds, 0):.3f}"}
    root = ET.Element("testsuites", {"name": "agentstore", **totals})
    start = {"timestamp": document["started_at"], "id": run_id}
    suite = ET.SubElement(root, "testsuite", {"name": _xml(document["kind"]), **totals, **start})
    _properties(
        suite,
        [
            ("agentstore:verdict", document["verdict"]),
            *(("agentstore:reason", reason) for reason in document["reasons"]),
            ("agentstore:base_url", document["target"]["base_url"]),
            ("agentstore:environment", document["target"]["environment"]),
            ("agentstore:test_marker", document["test_marker"]),
        ],
    )
    for check in checks:
        _case(suite, check, document["kind"])
    ET.indent(root)
    rendered: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return rendered


def _test(check: Mapping[str, Any], browser: str | None) -> dict[str, Any]:
    earlier = [
        {
            "attempt": number,
            "status": _CTRF_STATUS[attempt["status"]],
            "duration": attempt["duration_ms"],
            **_present(message=attempt["message"]),
        }
        for number, attempt in enumerate(check["attempts"][:-1], start=1)
    ]
    files = [
        {"name": name, "contentType": mimetypes.guess_type(name)[0] or "application/octet-stream", "path": name}
        for name in check["artifacts"]
    ]
    more = {f"agentstore:{name}": check[name] or None for name in ("detail", "warnings", "notes")}
    more |= {f"agentstore:{name}": check[name] for name in ("assertions", "code", "step")}
    return {
        "name": check["title"],
        "testId": check["id"],
        "status": _CTRF_STATUS[check["status"]],
        "rawStatus": check["status"],
        "duration": check["duration_ms"],
        "labels": {"severity": check["severity"]},
        "flaky": check["flaky"],
        "retries": len(earlier),
        # The schema wants no empty lists.
        **_present(
            message=check["message"], browser=browser, retryAttempts=earlier or None, attachments=files or None,
            extra=_present(**more),
        ),
    }  # fmt: skip


def _case(suite: ET.Element, check: Mapping[str, Any], kind: str) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {"name": _xml(check["title"]), "classname": _xml(kind), "time": f"{check['duration_ms'] / 1000:.3f}"},
    )
    _properties(
        case,
        [
            ("agentstore:id", check["id"]),
            ("agentstore:severity", check["severity"]),
            ("agentstore:flaky", "true" if check["flaky"] else None),
            *(("agentstore:warning", warning) for warning in check["warnings"]),
        ],
    )
    word = {"failed": "failure", "error": "error", "skipped": "skipped"}.get(check["status"])
    if word is not None:
        said = {"message": _xml(check["message"] or "")} | ({"type": check["code"]} if check["code"] else {})
        found = ET.SubElement(case, word, said)
        found.text = _xml("\n".join(f"{name}: {value}" for name, value in check["detail"].items())) or None


def _properties(parent: ET.Element, items: Iterable[tuple[str, str | None]]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in items:
        if value is not None:
            ET.SubElement(properties, "property", {"name": name, "value": _xml(value)})


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def _xml(text: str) -> str:
    """Return the text without the characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
