"""The handler of `http.probe`: one request, run and judged as a UAT spec of one check."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema_rs

from agentstore_runner.contract import probe
from agentstore_runner.contract.problem import Problem
from agentstore_runner.handlers import Desk, Report, Work
from agentstore_runner.uat.handler import UatHandler, not_valid, schema_problems

_VALIDATOR = jsonschema_rs.Draft202012Validator(probe.SCHEMA, pattern_options=jsonschema_rs.RegexOptions())


class ProbeHandler:
    """Sends one request; secrets come from `environ`."""

    kinds = (probe.KIND,)

    def __init__(self, *, environ: Mapping[str, str] = os.environ) -> None:
        self._checks = UatHandler(environ=environ)

    def problems(self, spec: Mapping[str, Any]) -> list[Problem]:
        """Return everything that is wrong with a spec: the schema's findings, else the code's."""
        return schema_problems(_VALIDATOR, spec) or probe.problems(spec)

    def run(self, work: Work, desk: Desk) -> Report:
        """Send the request: `done` with its check, or `failed` with the reason it could not be sent."""
        if found := self.problems(work.spec):
            return Report("failed", error=not_valid(found), failure_class="configuration")
        return self._checks.run(replace(work, spec=probe.as_checks(work.spec)), desk)
