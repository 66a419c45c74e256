"""The maintenance loop's parts: duties that fail, paces, and silence that nobody could have heard."""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from jobs.management.clockwork import Clockwork, DatabaseAwayError, Duty
from jobs.management.hearing import Hearing
from jobs.models import Agent, AgentJob, MaintenanceDuty, Uptime
from jobs.services import duties, governance
from jobs.services.documents import parse
from jobs.services.duties import DutyLease
from jobs.services.maintenance import Expired
from tests.commands.conftest import API_SPEC
from tests.engine.queues import close_racers, race


class Calls:
    """Counts how often it was called."""

    count = 0

    def __call__(self) -> Expired:
        self.count += 1
        return Expired(jobs=self.count, tasks=0)


def a_programming_error() -> None:
    raise KeyError("colour")


def a_statement_that_times_out() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '1ms'")
        try:
            cursor.execute("SELECT pg_sleep(60)")
        finally:
            cursor.execute("SET statement_timeout = 0")


def a_lost_connection() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@transaction.atomic
def a_transaction_that_is_cut() -> None:
    a_lost_connection()


def shift(name: str, by: timedelta) -> None:
    """Let time pass for a duty: what it waits for comes nearer."""
    moments = ("due_at", "leased_until", "started_at")
    MaintenanceDuty.objects.filter(name=name).update(**{moment: F(moment) - by for moment in moments})


def turn(clockwork: Clockwork, *duties: Duty) -> float:
    """One turn of a loop at a pace of five seconds; how long it would wait then."""
    return clockwork._turn(duties, 5.0)


def a_duty_that_counts_wrongly() -> None:
    return 7  # type: ignore[return-value]  # what no check of types saw


def loop(*duties: Duty) -> Clockwork:
    return Clockwork(duties, threading.Event())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fault", [a_programming_error, a_statement_that_times_out, a_duty_that_counts_wrongly])
def test_a_duty_that_fails_is_logged_and_stops_no_other(
    fault: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    after = Calls()
    duties = [Duty(name="before", act=lambda: None), Duty(name="faulty", act=fault), Duty(name="after", act=after)]

    counts, failed, held = loop(*duties).once()

    assert counts == {"before": {}, "after": {"jobs": 1, "tasks": 0}}
    assert (failed, held) == (["faulty"], [])
    assert [record.levelno for record in caplog.records if "faulty" in record.getMessage()] == [logging.ERROR]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lost", [a_lost_connection, a_transaction_that_is_cut])
def test_a_lost_connection_ends_the_turn_and_the_next_one_takes_its_own_duty_up_again(lost: Callable[[], None]) -> None:
    after = Calls()
    acts: list[Callable[[], None]] = [lost, lambda: None]

    def first() -> None:
        acts.pop(0)()

    duties = [Duty(name="first", act=first), Duty(name="after", act=after)]
    clockwork = loop(*duties)

    with pytest.raises(DatabaseAwayError):
        turn(clockwork, *duties)
    assert after.count == 0

    turn(clockwork, *duties)
    assert (acts, after.count) == ([], 1)
    row = MaintenanceDuty.objects.get(name="first")
    assert row.last_success_at is not None
    assert (row.failures, row.last_error) == (0, "")


def test_how_a_duty_went_stands_in_its_row(db: None) -> None:
    def fail() -> None:
        raise OSError("no route to \x00 the storage, Authorization: Bearer abcdefghijklmnopqrstuvwxyz")

    good, bad = Duty(name="good", act=Calls()), Duty(name="bad", act=fail, every=60)
    turn(loop(), good, bad)

    row = MaintenanceDuty.objects.get(name="good")
    assert (row.every_seconds, row.term, row.failures, row.last_error, row.last_error_at) == (5.0, 1, 0, "", None)
    assert row.last_success_at is not None
    assert row.last_seconds is not None
    assert row.leased_until is None
    assert row.due_at - (row.started_at or row.due_at) == timedelta(seconds=5)
    row = MaintenanceDuty.objects.get(name="bad")
    assert (row.every_seconds, row.failures, row.last_success_at, row.leased_until) == (60.0, 1, None, None)
    assert row.last_error.startswith("OSError: no route to \ufffd the storage")
    assert "abcdefghijklmnop" not in row.last_error


def test_a_duty_is_done_no_oftener_than_its_interval(db: None) -> None:
    often, seldom = Calls(), Calls()
    duties = [Duty(name="often", act=often), Duty(name="seldom", act=seldom, every=60)]
    clockwork = loop()

    waits = []
    for _ in range(13):
        waits.append(turn(clockwork, *duties))
        turn(clockwork, *duties)
        for duty in duties:
            shift(duty.name, timedelta(seconds=5))

    assert (often.count, seldom.count) == (13, 2)
    assert waits == [5.0] * 13


def test_a_duty_that_goes_on_failing_is_tried_after_longer_and_longer_pauses(db: None) -> None:
    faults: list[type[Exception] | None] = [OSError] * 9 + [None]

    def fail() -> None:
        if fault := faults.pop(0):
            raise fault("no route to the storage")

    duty = Duty(name="sweep", act=fail, every=3600)
    pauses = []
    for _ in range(10):
        turn(loop(), duty)
        pauses.append(duties.waits(names=["sweep"], owner="somebody")["sweep"])
        shift("sweep", timedelta(seconds=pauses[-1]))

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 3600]
    assert MaintenanceDuty.objects.get().failures == 0


def test_two_loops_do_a_duty_once_an_interval(db: None) -> None:
    calls = Calls()
    duty = Duty(name="shared", act=calls)
    one, other = loop(), loop()
    for number in range(1, 4):
        for clockwork in (one, other, one):
            turn(clockwork, duty)
        assert calls.count == number
        shift("shared", timedelta(seconds=5))


def test_the_duty_of_a_loop_that_died_is_taken_over_after_its_lease_and_not_before(db: None) -> None:
    calls = Calls()
    duty = Duty(name="orphan", act=calls, lease=20)
    turn(loop(), duty)
    shift("orphan", timedelta(seconds=5))
    assert duties.take(name="orphan", owner="dead", lease_seconds=20) is not None
    clockwork = loop()

    assert turn(clockwork, duty) == 20
    assert clockwork.once() == ({}, [], [])
    shift("orphan", timedelta(seconds=19))
    turn(clockwork, duty)
    assert calls.count == 1
    shift("orphan", timedelta(seconds=1))
    turn(clockwork, duty)
    assert calls.count == 2


def test_a_clock_that_is_set_back_keeps_no_duty_waiting_for_the_time_it_showed(db: None) -> None:
    calls = Calls()
    duty = Duty(name="daily", act=calls, every=3600)
    turn(loop(), duty)
    shift("daily", timedelta(seconds=-50))
    assert turn(loop(), duty) == 60  # a little is waited out
    assert calls.count == 1

    shift("daily", timedelta(hours=-5))
    turn(loop(), duty)
    assert calls.count == 2

    shift("daily", timedelta(hours=1))
    assert duties.take(name="daily", owner="dead", lease_seconds=20) is not None
    shift("daily", timedelta(hours=-5))
    turn(loop(), duty)
    turn(loop(), duty)
    assert calls.count == 3


def test_one_turn_by_hand_leaves_alone_what_a_loop_is_doing_and_keeps_intervals(db: None) -> None:
    free, taken = Calls(), Calls()
    both = [Duty(name="free", act=free, every=60), Duty(name="taken", act=taken)]
    turn(loop(), *both)
    shift("taken", timedelta(seconds=5))
    assert duties.take(name="taken", owner="a loop", lease_seconds=20) is not None

    assert loop(*both).once() == ({"free": {"jobs": 2, "tasks": 0}}, [], ["taken"])

    assert (free.count, taken.count) == (2, 1)
    assert MaintenanceDuty.objects.get(name="free").every_seconds == 60


def test_a_slow_owner_changes_nothing_after_its_lease_went_to_another(
    db: None, caplog: pytest.LogCaptureFixture
) -> None:
    def slow() -> None:
        shift("slow", timedelta(seconds=15))
        assert duties.take(name="slow", owner="another", lease_seconds=15) is not None

    turn(loop(), Duty(name="slow", act=slow))

    row = MaintenanceDuty.objects.get()
    assert (row.leased_by, row.term, row.last_success_at) == ("another", 2, None)
    assert row.leased_until is not None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    lost = DutyLease(name="slow", owner="another", term=1)
    assert not duties.succeeded(lease=lost, seconds=1)
    assert not duties.failed(lease=lost, seconds=1, error="late")


def test_a_lease_is_settled_once(db: None) -> None:
    duties.register(["once"])
    lease = duties.take(name="once", owner="me", lease_seconds=15, every_seconds=5)
    assert lease is not None
    assert duties.succeeded(lease, seconds=1)
    assert not duties.failed(lease, seconds=1, error="again")


@pytest.mark.django_db(transaction=True)
def test_of_ten_loops_that_ask_at_once_one_gets_the_duty() -> None:
    for _ in range(20):
        duties.register(["wanted"])
        takers = [partial(duties.take, name="wanted", owner=f"loop {n}", lease_seconds=15) for n in range(10)]
        answers = race(*takers)
        assert sum(isinstance(answer, DutyLease) for answer in answers) == 1, answers
        assert sum(answer is None for answer in answers) == 9, answers
        MaintenanceDuty.objects.all().delete()
    close_racers()


def test_a_duty_that_this_version_does_not_know_is_forgotten_unless_a_loop_is_at_it(db: None) -> None:
    duties.register(["gone", "busy", "known"])
    assert duties.take(name="busy", owner="an older loop", lease_seconds=15) is not None
    duties.forget_others(["known", "new"])
    assert set(MaintenanceDuty.objects.values_list("name", flat=True)) == {"busy", "known"}


@pytest.mark.django_db(transaction=True)
def test_once_stopped_no_further_duty_begins() -> None:
    stop, after = threading.Event(), Calls()
    clockwork = Clockwork([Duty(name="last", act=stop.set), Duty(name="after", act=after)], stop)

    clockwork.run(5)

    assert after.count == 0


@pytest.mark.django_db(transaction=True)
def test_a_duty_apart_keeps_no_other_from_its_time() -> None:
    stop, entered, released = threading.Event(), threading.Event(), threading.Event()
    goes = []

    def endless() -> None:
        entered.set()
        assert released.wait(60)

    def quick() -> None:
        assert entered.wait(60)
        goes.append(None)
        if len(goes) == 3:
            stop.set()
            released.set()

    Clockwork([Duty(name="slow", act=endless, apart=True), Duty(name="quick", act=quick)], stop).run(0.01)

    assert len(goes) == 3
    assert MaintenanceDuty.objects.get(name="slow").last_success_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_fault_of_the_loop_itself_ends_it_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("colour")

    monkeypatch.setattr(Clockwork, "_do", broken)
    with pytest.raises(RuntimeError, match="colour"):
        Clockwork([Duty(name="apart", act=Calls(), apart=True)], stop).run(5)
    assert stop.is_set()


class Front(BaseHTTPRequestHandler):
    """A public address that answers with the status it was given."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def front() -> Iterator[tuple[type[Front], str]]:
    class Own(Front):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Own, f"http://127.0.0.1:{server.server_port}/healthz"
        server.shutdown()
        thread.join()


@pytest.fixture
def silent_job(agent: Agent) -> AgentJob:
    """A running job whose runner has said nothing for ten minutes."""
    spec = parse(API_SPEC.read_bytes())
    job = AgentJob.objects.filter(
        pk=governance.enqueue(by="test", agent=agent.principal_key, kind="uat.quick-task", spec=spec).job_id
    )
    long_ago = Now() - timedelta(minutes=10)
    job.update(status="running", claim_id=uuid4(), claimed_by="runner", started_at=long_ago, heartbeat_at=long_ago)
    return job.get()


def test_silence_counts_only_while_agents_could_be_heard(front: tuple[type[Front], str], silent_job: AgentJob) -> None:
    own, url = front
    hearing = Hearing(url)
    own.status = 503
    assert hearing.reap().jobs == 0

    # The outage lasted: once the address answers again, silence begins to count from that moment.
    Uptime.objects.create(up_since=Now() - timedelta(days=1), seen_at=Now() - timedelta(minutes=2))
    own.status = 503
    assert hearing.reap().jobs == 0
    assert "503" in Uptime.objects.get().fault
    own.status = 200
    assert hearing.reap().jobs == 0
    assert Uptime.objects.get().fault == ""

    Uptime.objects.update(up_since=Now() - timedelta(minutes=5))
    assert hearing.reap().jobs == 1
    silent_job.refresh_from_db()
    assert (silent_job.status, silent_job.failure_class) == ("failed", "lost")


def test_an_address_that_goes_on_not_answering_is_one_warning_and_its_return_one_line(
    front: tuple[type[Front], str], db: None, caplog: pytest.LogCaptureFixture
) -> None:
    own, url = front
    hearing = Hearing(url)
    for status in (200, 503, 503, 503, 200, 200):
        own.status = status
        hearing.reap()

    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING, logging.INFO]
    assert "can be heard" in caplog.records[-1].getMessage()


def test_without_an_address_to_probe_silence_always_counts(silent_job: AgentJob) -> None:
    hearing = Hearing("")
    assert hearing.reap().jobs == 0
    Uptime.objects.update(up_since=Now() - timedelta(minutes=5))

    assert hearing.reap().jobs == 1
