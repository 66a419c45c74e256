"""Every example against the demo shop, with the verdict it is meant to get."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentstore_runner.contract import results
from workbench import Bench, Notebook

from examples.uat import EXPECTED, load

pytestmark = [pytest.mark.lengthy, pytest.mark.usefixtures("browser")]
PASSWORD = "correct-horse-battery"
PNG = b"\x89PNG\r\n\x1a\n"


def patient(value: Any) -> Any:
    """Return a spec with its time budgets widened: verdicts here must not depend on how busy the machine is."""
    if isinstance(value, list):
        return [patient(item) for item in value]
    if isinstance(value, dict):
        return {key: item * 60 if key == "max_ms" else patient(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_gets_its_verdict(name: str, shop: str, bench: Bench) -> None:
    bench.environ["UAT_SHOP_PASSWORD"] = PASSWORD
    desk = Notebook()
    spec = patient(load(name, shop))
    report = bench.run(spec, desk)
    assert (report.status, report.verdict, report.error) == ("done", EXPECTED[name], None), report.results
    assert report.results is not None
    assert results.problems(report.results) == []
    assert results.mismatches(report.results, spec) == []
    named = [artifact for check in report.results["checks"] for artifact in check["artifacts"]]
    assert sorted(named) == sorted(desk.files)
    assert all(content.startswith(PNG) for content in desk.files.values())
    assert PASSWORD not in json.dumps(report.results) + "".join(desk.lines)
    assert desk.steps[-1][:2] == (len(spec["checks"]), len(spec["checks"]))


def test_every_example_file_has_an_expected_verdict() -> None:
    folder = Path(__file__).parents[3] / "examples" / "uat"
    assert sorted(path.stem for path in folder.glob("*.json")) == sorted(EXPECTED)


def test_the_reasons_are_those_of_the_reference(shop: str, bench: Bench) -> None:
    contract = bench.run(patient(load("api-contract", shop)))
    checkout = bench.run(load("checkout-regression", shop))
    assert contract.results is not None
    assert checkout.results is not None
    assert contract.results["reasons"] == ["minor failed: hsts"]
    assert checkout.results["reasons"] == ["failed: cart"]
    assert len(checkout.results["checks"][1]["attempts"]) == 2
