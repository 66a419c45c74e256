"""The runner itself: one claim at a time, worked on, reported, and only then the next."""

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from agentstore_runner import clock, letters
from agentstore_runner.backoff import Backoff
from agentstore_runner.claiming import ONCE_PATIENCE_S, Claiming, Exit, Idle, Order
from agentstore_runner.client import Answer, Client, UnansweredError
from agentstore_runner.delivery import PATIENCE_S, Delivered, Delivery
from agentstore_runner.desk import Desk, Logger
from agentstore_runner.envelope import Job
from agentstore_runner.handlers import Handler, Report, Work
from agentstore_runner.heartbeats import Heartbeats
from agentstore_runner.redaction import Redactor
from agentstore_runner.shutdown import Forced, Shutdown
from agentstore_runner.spool import Held, Letter, Spool
from agentstore_runner.tables import BY_NAME, TASKS, Table

log = logging.getLogger(__name__)


class Supervisor:
    """Works on jobs and tasks until there is a reason to stop."""

    def __init__(
        self,
        order: Order,
        *,
        client: Client,
        spool: Spool,
        handlers: Mapping[str, Handler],
        task_handlers: Mapping[str, Handler],
        shutdown: Shutdown,
        redactor: Callable[[], Redactor],
        rng: random.Random,
    ) -> None:
        self._order = order
        self._client = client
        self._spool = spool
        self._handlers = handlers
        self._task_handlers = task_handlers
        self._shutdown = shutdown
        self._redactor = redactor
        self._rng = rng
        self._delivery = Delivery(client, spool, rng)
        self._claiming = Claiming(order, client=client, spool=spool, shutdown=shutdown, rng=rng)

    def run(self) -> int:
        """Settle what an earlier process left, then claim and work; return the exit code."""
        if (code := self._reconcile()) is not None:
            return code
        while not self._shutdown.asked.is_set():
            self._post_owed(patience_s=0)
            if (code := self._round()) is not None:
                return code
        return self._shutdown.exit_code if self._order.once else Exit.OK

    def _round(self) -> int | None:
        """Ask every table once and work on what there is; rest if there was nothing. Return a code to end with."""
        idle: dict[Table, Idle] = {}
        for table in self._order.tables:
            claimed = self._claiming.claim(table)
            if isinstance(claimed, Job):
                code = self._work(claimed)
                if self._shutdown.asked.is_set():
                    return self._shutdown.exit_code
                if self._order.once and not self._claiming.inherited:
                    return code
            elif isinstance(claimed, Exit):
                return claimed
            else:
                idle[table] = claimed
        return self._rest(idle) if len(idle) == len(self._order.tables) else None

    def _rest(self, idle: Mapping[Table, Idle]) -> int | None:
        """Wait until there may be work again; with --once, return the code to end with."""
        ends = [rest.once for rest in idle.values() if rest.once is not None]
        if self._order.once and len(ends) == len(idle):
            self._release(idle)
            return max(ends)
        if self._shutdown.asked.wait(min(rest.seconds for rest in idle.values())):
            # The ids were answered and not used up; the next process may want something else.
            self._release(table for table, rest in idle.items() if rest.once is not None)
        return None

    def _release(self, tables: Iterable[Table]) -> None:
        for table in tables:
            self._spool.release(table)

    def _work(self, job: Job) -> int:
        """Do one job, report it, and return the exit code of this outcome."""
        job_log = _of(job.id)
        job_log.info("claimed: %s, attempt %d", job.kind, job.attempt)
        began = clock.now()
        redactor = self._redactor()
        try:
            # From here on the work may have effects: a process that finds this note does not start it again.
            self._spool.hold(Held(job.claim_id, request="", job_id=job.id, table=job.table.name))
            scratch = self._spool.new_scratch()
        except OSError as error:
            report = Report("failed", error=f"the runner cannot write to its state: {error}", failure_class="resource")
            letter = letters.compose(job.table, job.id, job.claim_id, report, notes=[], redactor=redactor)
            self._delivery.deliver(letter, hurry=self._shutdown.hurried)
            return Exit.NOT_DONE
        desk = Desk(job, client=self._client, scratch=scratch, redactor=redactor, backoff=self._backoff, log=job_log)
        beats = Heartbeats(
            job, desk, client=self._client, shutdown=self._shutdown, backoff=self._backoff(), log=job_log
        )
        try:
            with beats, self._shutdown.telling(lambda: desk.stop("shutdown")):
                self._start(job, desk, job_log)
                report = self._handled(job, desk, scratch, job_log)
                desk.clear()
                job_log.info("ended after %.1f s: %s", clock.now() - began, report.verdict or report.status)
                return self._reported(job, desk, report, redactor, job_log)
        finally:
            self._spool.discard(scratch)

    def _reported(self, job: Job, desk: Desk, report: Report, redactor: Redactor, job_log: Logger) -> int:
        """Store and post what the handler reported, unless the job was taken away before it ended."""
        lost = desk.lost
        try:
            report = letters.honest(report, desk.stopped())
            letter = letters.compose(job.table, job.id, job.claim_id, report, notes=desk.notes, redactor=redactor)
        except Exception as error:  # noqa: BLE001 - what a handler puts into its report must not end the runner
            job_log.exception("the report cannot be written down")
            report = letters.crashed(error)
            letter = letters.compose(job.table, job.id, job.claim_id, report, notes=desk.notes, redactor=redactor)
        self._store(letter, job_log)
        if lost is not None:
            self._delivery.set_aside(letter, lost)
            return Exit.LOST
        if self._delivery.deliver(letter, hurry=self._shutdown.hurried) is not Delivered.ACKNOWLEDGED:
            return Exit.LOST
        judged = self._order.judge_by_verdict and job.table is not TASKS
        good = report.verdict == "pass" if judged else report.status in ("done", "succeeded")
        return Exit.OK if good else Exit.NOT_DONE

    def _start(self, job: Job, desk: Desk, job_log: Logger) -> None:
        """Tell the server that the work on a task begins, until it knows or there is a reason to stop."""
        backoff = self._backoff()
        while job.table is TASKS and desk.stopped() is None:
            try:
                answer = self._client.start(job.id, job.claim_id)
            except UnansweredError as error:
                pause = backoff.next(error.retry_after)
                job_log.warning("start not acknowledged, next try in %.1f s: %s", pause, error)
                desk.wait(pause)
                continue
            if not answer.ok:
                job_log.warning("the task was taken away (%s)", answer.sentence)
                desk.lose(answer)
            return

    def _handled(self, job: Job, desk: Desk, scratch: Path, job_log: Logger) -> Report:
        """Let the handler of the kind work; every way it can end becomes a report."""
        if (reason := desk.stopped()) is not None:
            return letters.stopped(reason)
        handler = (self._task_handlers if job.table is TASKS else self._handlers).get(job.kind)
        if handler is None:
            error = f"this runner has no handler for the kind {job.kind!r}"
            return Report("failed", error=error, failure_class="configuration", details={"code": "kind_unknown"})
        left = max(job.deadline - clock.now(), 0.0)
        work = Work(job.id, job.root_id, job.kind, job.spec, job.attempt, left, scratch, job.target)
        try:
            with self._shutdown.interruptible():
                report: object = handler.run(work, desk)
        except Forced:
            return letters.stopped(desk.stopped())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a handler does, its job gets a report
            job_log.exception("the handler crashed")
            return letters.crashed(error)
        if not isinstance(report, Report):
            return letters.crashed(TypeError(f"the handler returned {type(report).__name__}, not a Report"))
        return report

    def _store(self, letter: Letter, job_log: Logger) -> None:
        """Put the report on disk before it is posted; on a full disk it is posted all the same."""
        try:
            self._spool.keep(letter)
            self._spool.release(BY_NAME[letter.table])
        except OSError as error:
            job_log.error("the report cannot be stored before it is posted: %s", error)

    def _reconcile(self) -> int | None:
        """Post what an earlier process reported, report what it left unfinished; return a code to end with, if any."""
        self._post_owed(patience_s=self._patience_s)
        for table in BY_NAME.values():
            held = self._spool.held(table)
            if held is not None and held.job_id and (code := self._settle(table, held)) is not None:
                return code
        return None

    def _settle(self, table: Table, held: Held) -> int | None:
        """Report work that an earlier process left unfinished, if the server still waits for it."""
        answer = self._agent()
        if answer is None:
            return None if self._shutdown.asked.is_set() else Exit.UNREACHABLE
        if not answer.ok:
            log.error("the server refuses this agent: %s", answer.sentence)
            return Exit.REFUSED
        claims = answer.body.get(table.claims, [])
        claim = next((claim for claim in claims if claim["claim_id"] == held.claim_id), None)
        if claim is None:
            _of(held.job_id).info("an earlier process left it, and it has ended since")
            self._spool.release(table)
            return None
        _of(held.job_id).warning("an earlier process left it unfinished")
        report = letters.stopped("cancel" if claim.get("cancel_requested") else "shutdown")
        report = replace(report, details={**report.details, "found_by": "the next process"})
        letter = letters.compose(table, held.job_id, held.claim_id, report, notes=[], redactor=self._redactor())
        self._store(letter, _of(held.job_id))
        self._delivery.deliver(letter, hurry=self._shutdown.asked, patience_s=self._patience_s)
        return None

    @property
    def _patience_s(self) -> float:
        return ONCE_PATIENCE_S if self._order.once else PATIENCE_S

    def _post_owed(self, *, patience_s: float) -> None:
        """Post the reports that the server does not have yet; no patience means one try each."""
        for letter in self._spool.letters():
            if self._shutdown.asked.is_set():
                return
            _of(letter.job_id).info("the server does not have this report yet")
            self._delivery.deliver(letter, hurry=self._shutdown.asked, patience_s=patience_s)

    def _agent(self) -> Answer | None:
        """Ask for the agent's open claims until there is an answer; None if a signal or --once ends the asking."""
        backoff, until = self._backoff(), clock.now() + ONCE_PATIENCE_S
        while not self._shutdown.asked.is_set():
            try:
                return self._client.me()
            except UnansweredError as error:
                pause = backoff.next(error.retry_after)
                if self._order.once and clock.now() + pause > until:
                    return None
                log.warning("the server does not answer, next try in %.1f s: %s", pause, error)
            self._shutdown.asked.wait(pause)
        return None

    def _backoff(self) -> Backoff:
        return Backoff(self._rng)


def _of(job_id: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the log whose lines name the job."""
    return logging.LoggerAdapter(log, {"job": job_id})
