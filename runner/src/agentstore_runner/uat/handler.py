"""The handler of `uat.quick-task`: starts the child, follows it, and reports what is known whatever happens to it."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from agentstore_runner import __version__
from agentstore_runner.contract import grants, results, uat
from agentstore_runner.contract.problem import Problem, pointer
from agentstore_runner.contract.verdict import judge
from agentstore_runner.handlers import Desk, Report, Work
from agentstore_runner.redaction import MIN_LENGTH, VERSION, Redactor
from agentstore_runner.uat import chromium
from agentstore_runner.uat.checks import Progress
from agentstore_runner.uat.process import Child, short_folder

_DEFAULT_JOB_SECONDS: Final = 300
_REPORT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.2
_MAX_CHILDREN: Final = 4
# A child that is silent for so long beyond its step's own limit hangs; starting a browser takes up to 30 s.
_HANG_SECONDS: Final = 60.0
_VALIDATOR = jsonschema_rs.Draft202012Validator(uat.SCHEMA, pattern_options=jsonschema_rs.RegexOptions())


class RefusedError(Exception):
    """The job cannot be started; the text tells a person what to change."""


@dataclass
class _Run:
    """What is known of one job while its children work."""

    spec: dict[str, Any]
    grant: grants.Grant
    secrets: dict[str, str]
    browser: str | None = None
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    current: int | None = None
    step: int | None = None

    def take(self, index: int, result: dict[str, Any]) -> None:
        self.checks[index] = result
        self.progress.statuses[result["id"]] = result["status"]
        if result["status"] in ("failed", "error") and self.spec["checks"][index].get("on_fail") == "stop":
            self.progress.stopped_by = self.progress.stopped_by or result["id"]
        self.current = self.step = None

    def unfinished(self) -> list[int]:
        return [index for index in range(len(self.spec["checks"])) if index not in self.checks]

    def close(self, status: str, code: str | None, running: str, waiting: str) -> None:
        """Give every unfinished check a result: one message for the one that was running, one for the others."""
        current, step = self.current, self.step
        for index in self.unfinished():
            known = {"step": step, "message": running} if index == current else {"message": waiting}
            self.take(index, results.check_result(self.spec["checks"][index], status, code=code, **known))


class UatHandler:
    """Executes UAT specs; secrets come from `environ`, time limits are measured with `clock` (seconds)."""

    kinds = (uat.KIND,)

    def __init__(self, *, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic) -> None:
        self._environ = environ
        self._clock = clock

    def problems(self, spec: Mapping[str, Any]) -> list[Problem]:
        """Return everything that is wrong with a spec: the schema's findings, else the code's."""
        return schema_problems(_VALIDATOR, spec) or uat.problems(spec)

    def run(self, work: Work, desk: Desk) -> Report:
        """Execute the spec: `done` with the checks, or `failed` with the reason nothing could be evaluated."""
        started_at = datetime.now(UTC)
        try:
            run, executable = self._prepared(work.spec, work.target)
        except RefusedError as refusal:
            return Report("failed", error=str(refusal), failure_class="configuration")
        asked = float(run.spec.get("limits", {}).get("job_timeout_s", _DEFAULT_JOB_SECONDS))
        seconds = min(asked, work.seconds_left - _REPORT_SECONDS)
        with short_folder() as home:
            reason = self._follow(run, executable, work.scratch, home, desk, self._clock() + seconds)
        if reason in ("timeout", "deadline"):
            limit = f"the time limit of the job ({max(seconds, 0):.0f} s) was reached"
            run.close("error", "job_timeout", limit, f"not started: {limit}")
        elif reason is not None:
            run.close("skipped", None, f"stopped while it was running ({reason})", f"not run, because of the {reason}")
        return self._report(work.kind, run, started_at, reason)

    def _prepared(self, spec: dict[str, Any], target: Mapping[str, Any] | None) -> tuple[_Run, str | None]:
        if found := self.problems(spec):
            raise RefusedError(not_valid(found))
        grant = self._grant(spec, target)
        executable = chromium.find(self._environ)
        if executable is None and uat.uses_browser(spec):
            raise RefusedError(f"no Chromium was found on the runner; on Debian: {chromium.INSTALL_HINT}")
        return _Run(spec, grant, self._secrets(spec)), executable

    def _grant(self, spec: dict[str, Any], target: Mapping[str, Any] | None) -> grants.Grant:
        """Return what the target allows; the server has compared it with the spec, and so does the runner."""
        if target is None:
            raise RefusedError(f"the server has no target for {spec['target']['base_url']}, so nothing may be opened")
        try:
            grant = grants.read(target)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if problem := next(grants.problems(spec, grant), None):
            raise RefusedError(f"the target does not allow this spec: {problem.pointer}: {problem.message}")
        return grant

    def _secrets(self, spec: dict[str, Any]) -> dict[str, str]:
        values = {}
        for name, source in spec.get("secrets", {}).items():
            value = self._environ.get(source["env"], "")
            if not value:
                raise RefusedError(f"the secret “{name}” has no value: set {source['env']} in the runner's environment")
            if len(value) < MIN_LENGTH:
                raise RefusedError(
                    f"the secret in {source['env']} is too short to be masked: {MIN_LENGTH} characters are needed"
                )
            values[name] = value
        return values

    def _follow(
        self, run: _Run, executable: str | None, folder: Path, home: Path, desk: Desk, deadline: float
    ) -> str | None:
        """Work until every check has a result or something ends the work; returns what did."""
        for _ in range(_MAX_CHILDREN):
            if not run.unfinished():
                return None
            task = {
                "spec": run.spec,
                "grant": run.grant.document(),
                "secrets": run.secrets,
                "chromium": executable,
                "folder": str(folder),
                "first": run.unfinished()[0],
                "progress": asdict(run.progress),
            }
            child = Child(task, home)
            try:
                reason = self._until_it_ends(child, run, folder, desk, deadline)
            finally:
                child.end()
            if reason in ("died", "hung"):
                lost = run.current if run.current is not None else next(iter(run.unfinished()), None)
                if lost is not None:
                    how = "stopped unexpectedly" if reason == "died" else "did not respond any more"
                    check, step = run.spec["checks"][lost], run.step
                    message = f"the browser's process {how}"
                    run.take(
                        lost, results.check_result(check, "error", code="runner_error", message=message, step=step)
                    )
                    desk.log(f"check {check['id']}: {message}")
            elif reason is not None:
                return reason
        run.close("error", "runner_error", "", "not started: the browser's process failed too often")
        return None

    def _until_it_ends(self, child: Child, run: _Run, folder: Path, desk: Desk, deadline: float) -> str | None:
        silent_until = self._clock() + _HANG_SECONDS
        while True:
            if reason := desk.stopped():
                return reason
            now = self._clock()
            if now >= deadline:
                return "timeout"
            if now >= silent_until:
                return "hung"
            events = child.events(_LOOK_SECONDS)
            if events is None:
                return "died" if run.unfinished() else None
            for event in events:
                limit = self._event(event, run, folder, desk)
                silent_until = self._clock() + _HANG_SECONDS + limit
                if event["event"] == "end":
                    return None

    def _event(self, event: dict[str, Any], run: _Run, folder: Path, desk: Desk) -> float:
        """Take one event of the child; returns the seconds its next step may need."""
        checks = run.spec["checks"]
        if event["event"] == "browser":
            run.browser = event["version"]
        elif event["event"] == "step":
            if run.current != event["index"]:
                desk.progress(event["index"], len(checks), checks[event["index"]]["title"])
            run.current, run.step = event["index"], event["step"]
            return float(event["limit_s"])
        elif event["event"] == "artifact":
            run.progress.artifacts += 1
            desk.attach(folder / event["name"], name=event["name"], content_type=event["content_type"])
        elif event["event"] == "check":
            result = event["result"]
            run.progress.saved = event["saved"]
            run.take(event["index"], result)
            desk.log(f"check {result['id']}: {result['status']} in {result['duration_ms']} ms")
            desk.progress(event["index"] + 1, len(checks), checks[event["index"]]["title"])
        return 0.0

    def _report(self, kind: str, run: _Run, started_at: datetime, reason: str | None) -> Report:
        saved = [str(value) for value in run.progress.saved.values() if not isinstance(value, bool)]
        redactor = Redactor([*run.secrets.values(), *(value for value in saved if len(value) >= MIN_LENGTH)])
        checks = [redactor.document(run.checks[index]) for index in sorted(run.checks)]
        judged = reason in (None, "timeout", "deadline")
        judgement = judge(checks)
        spec = run.spec
        document = results.document(
            kind=kind,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            runner={"name": "agentstore-runner", "version": __version__, "browser": run.browser},
            target={"base_url": spec["target"]["base_url"], "environment": spec["target"].get("environment")},
            test_marker=spec.get("flags", {}).get("testMarker"),
            verdict=judgement.verdict if judged else None,
            reasons=list(judgement.reasons) if judged else [],
            checks=checks,
            redaction={"version": VERSION, "count": redactor.count},
        )
        if reason == "cancel":
            return Report("cancelled", results=document, redactor=redactor)
        if not judged:
            error = f"interrupted by the {reason} of the runner" if reason == "shutdown" else "the lease was lost"
            return Report("failed", results=document, error=error, failure_class="interrupted", redactor=redactor)
        if judgement.verdict is None:
            first = next((check for check in checks if check["status"] == "error"), checks[0])
            late = first["code"] == "job_timeout"
            return Report(
                "failed",
                results=document,
                error=f"nothing could be evaluated: {first['message']}",
                failure_class="timeout" if late else "internal",
                redactor=redactor,
            )
        return Report("done", verdict=judgement.verdict, results=document, redactor=redactor)


def schema_problems(validator: jsonschema_rs.Draft202012Validator, spec: Mapping[str, Any]) -> list[Problem]:
    """Return what a schema finds wrong with a spec, each with its place."""
    return [Problem(pointer(*error.instance_path), error.message) for error in validator.iter_errors(spec)]


def not_valid(found: list[Problem]) -> str:
    """Return the sentence of a refusal: the first of its problems."""
    return f"the spec is not valid: {found[0].pointer or 'the spec'}: {found[0].message}"
