"""A code becomes a token for as many hosts as it was made for, and whoever is refused learns nothing."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from jobs.models import Agent, AgentToken, AuditEvent, Enrolment, EnrolmentCode
from jobs.services import enrolling, token_format
from jobs.services.errors import Invalid
from tests.api.runner_client import JOBS, Runner, document
from tests.engine.queues import race
from tests.factories import AgentFactory, EnrolmentCodeFactory, TokenFactory


@pytest.fixture
def host(db: None) -> Runner:
    """Something that speaks HTTP and has no bearer."""
    return Runner(AgentFactory(principal_key="somebody-else"))


def body(code: EnrolmentCode | str, **members: Any) -> dict[str, Any]:
    runner = {"name": "agentstore-runner", "version": "1.0.0"}
    text = code if isinstance(code, str) else code.code  # type: ignore[attr-defined]  # only the factory knows it
    return {"code": text, "enrolment_id": str(uuid4()), "name": "fw-1", "runner": runner} | members


def enrol(host: Runner, code: EnrolmentCode | str, *, address: str = "127.0.0.1", **members: Any) -> Any:
    return host.send("POST", "enrol", body(code, **members), HTTP_AUTHORIZATION="", REMOTE_ADDR=address)


def left(code: EnrolmentCode) -> int:
    return EnrolmentCode.objects.get(pk=code.pk).uses_left


def works(answer: Any) -> bool:
    """Whether the token of an answer is let in."""
    token = answer.json()["token"]
    return Runner(AgentFactory(), bearer=token).send("GET", "agents/me").status_code == 200


def test_a_host_becomes_an_agent_of_its_own_and_works_at_once(host: Runner) -> None:
    code = EnrolmentCodeFactory(name_prefix="fw-", agent_title="Firewall", agent_labels={"site": "berlin"})
    answer = enrol(host, code, address="192.0.2.7")
    assert answer.status_code == 201
    agent = Agent.objects.get(principal_key="fw-1")
    assert (agent.title, agent.labels, agent.presence, agent.state) == (
        "Firewall", {"site": "berlin"}, "resident", "active",
    )  # fmt: skip
    assert agent.registered_at is not None
    own = Runner(agent, bearer=answer.json()["token"])
    JOBS.make(agent)
    assert own.claim(JOBS).status_code == 201
    line = AuditEvent.objects.get(tag="enrolled", subject_id=agent.pk)
    assert (line.details["host"], line.details["address"]) == ("fw-1", "192.0.2.7")
    assert AuditEvent.objects.filter(tag="token_issued", subject_id=agent.pk).count() == 1


def test_a_bound_code_gives_a_token_of_its_agent_whatever_the_host_is_called_and_leaves_its_state(host: Runner) -> None:
    agent = AgentFactory(state="paused", state_note="Not yet")
    answer = enrol(host, EnrolmentCodeFactory(agent=agent), name="The laptop of Ada")
    assert (answer.status_code, answer.json()["principal_key"]) == (201, agent.principal_key)
    assert (answer.json()["state"], works(answer)) == ("paused", True)
    assert Agent.objects.filter(pk=agent.pk, state="paused").exists()


def test_an_agent_that_only_sql_had_named_becomes_registered(host: Runner) -> None:
    named = AgentFactory(principal_key="fw-1", registered_at=None)
    assert enrol(host, EnrolmentCodeFactory()).status_code == 201
    assert Agent.objects.get(pk=named.pk).registered_at is not None


def test_nothing_that_is_stored_could_be_presented(host: Runner) -> None:
    made = enrolling.make_code(title="Rack 7", by="ada")
    answer = enrol(host, made.code)
    assert made.code not in repr(made)
    with connection.cursor() as cursor:
        for table in ("enrolment_codes", "enrolments", "enrolment_code_events", "audit_events", "agent_tokens"):
            cursor.execute(f"SELECT t::text FROM {table} t")
            for (row,) in cursor.fetchall():
                assert made.code not in row
                assert answer.json()["token"] not in row


def refusals() -> dict[str, EnrolmentCode | str]:
    past = timezone.now() - timedelta(seconds=1)
    return {
        "unknown": token_format.mint(token_format.CODE_PREFIX),
        "malformed": "ags_e_nothing",
        "a bearer": TokenFactory().bearer,  # type: ignore[attr-defined]
        "expired": EnrolmentCodeFactory(expires_at=past),
        "used up": EnrolmentCodeFactory(uses_left=0),
        "revoked": EnrolmentCodeFactory(revoked_at=past, revoked_by="ada"),
        "retired": EnrolmentCodeFactory(agent=AgentFactory(state="disabled", state_note="gone")),
    }


def test_every_refusal_is_the_same_and_makes_nothing(host: Runner) -> None:
    codes = refusals()
    before = (Agent.objects.count(), AgentToken.objects.count())
    answers = {name: enrol(host, code) for name, code in codes.items()}
    assert {(answer.status_code, answer.json()["code"]) for answer in answers.values()} == {(403, "enrolment_refused")}
    assert len({answer.content for answer in answers.values()}) == 1
    # A name that is taken is no oracle for who has no code, nor is one that the code would not allow.
    taken = enrol(host, codes["expired"], name="somebody-else")
    assert taken.content == answers["expired"].content
    assert (Agent.objects.count(), AgentToken.objects.count()) == before


def test_why_a_code_was_refused_stands_in_the_audit_trail(host: Runner) -> None:
    codes = refusals()
    for code in codes.values():
        enrol(host, code, address="192.0.2.9")
    told = AuditEvent.objects.filter(tag="enrolment_refused")
    for name in ("expired", "used up", "revoked"):
        line = told.get(subject_id=codes[name].pk)  # type: ignore[union-attr]
        assert (line.reason, line.actor) == (name, "fw-1 (192.0.2.9)")
    # Codes that nobody made are guesses: one line a minute for each address, or anybody could fill the trail.
    assert told.filter(subject_id=enrolling.UNKNOWN).count() == 1


def test_guessing_is_slowed_down_and_a_right_code_of_that_address_passes(host: Runner, settings: Settings) -> None:
    settings.REFUSED_BEARERS_PER_MINUTE = 5
    guesses = [enrol(host, token_format.mint(token_format.CODE_PREFIX)) for _ in range(7)]
    assert [answer.status_code for answer in guesses] == [403] * 5 + [429] * 2
    assert int(guesses[-1]["Retry-After"]) > 0
    assert enrol(host, token_format.mint(token_format.CODE_PREFIX), address="192.0.2.1").status_code == 403
    assert enrol(host, EnrolmentCodeFactory()).status_code == 201


def test_a_name_that_another_agent_has_is_said_and_costs_no_use(host: Runner) -> None:
    code = EnrolmentCodeFactory()
    answer = enrol(host, code, name="somebody-else")
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
    assert left(code) == 1
    assert enrol(host, code, name="fw-2").status_code == 201


@pytest.mark.parametrize("name", ["web-1", "fw 1", "fw-\t1", " fw-1", "fw-\u0085x y"])
def test_a_name_that_the_code_or_the_rules_of_keys_do_not_allow_costs_no_use(host: Runner, name: str) -> None:
    code = EnrolmentCodeFactory(name_prefix="fw-")
    answer = enrol(host, code, name=name)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/name"]
    assert left(code) == 1


@pytest.mark.parametrize(
    ("member", "value"),
    [("code", None), ("code", 7), ("code", "x" * 201), ("enrolment_id", "1"), ("name", ""), ("name", "a\0b"),
     ("name", "\ud800"), ("runner", {}), ("runner", "x"), ("enrolment_id", None)],
)  # fmt: skip
def test_a_member_that_cannot_be_is_named(host: Runner, member: str, value: Any) -> None:
    asked = body(EnrolmentCodeFactory()) | {member: value}
    answer = host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"].startswith(f"/{member}")


def test_a_lost_answer_costs_no_use_and_its_token_dies(host: Runner) -> None:
    code = EnrolmentCodeFactory()
    asked = body(code)
    lost = host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="")
    again = host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="")
    assert (lost.status_code, again.status_code) == (201, 200)
    assert (lost.json()["token"] != again.json()["token"], left(code)) == (True, 0)
    assert works(again)
    assert Runner(AgentFactory(), bearer=lost.json()["token"]).send("GET", "agents/me").status_code == 401
    assert AuditEvent.objects.filter(tag="token_revoked", reason=enrolling.LOST).count() == 1
    assert Enrolment.objects.filter(code=code).count() == 1


def test_asking_again_is_over_when_the_token_is_used_or_ended_or_ten_minutes_have_passed(host: Runner) -> None:
    code = EnrolmentCodeFactory(uses=4)
    used, ended, late = (body(code, name=f"fw-{number}") for number in range(3))
    answers = [host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="") for asked in (used, ended, late)]
    assert works(answers[0])
    tokens = AgentToken.objects
    tokens.filter(digest=token_format.digest(answers[1].json()["token"])).update(revoked_at=timezone.now())
    Enrolment.objects.filter(name="fw-2").update(enrolled_at=timezone.now() - timedelta(minutes=11))
    for asked in (used, ended, late):
        assert host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="").json()["code"] == "enrolment_refused"
    assert (works(answers[0]), left(code)) == (True, 1)


def test_a_revoked_code_gives_nothing_again_either(host: Runner) -> None:
    code = EnrolmentCodeFactory()
    asked = body(code)
    assert host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="").status_code == 201
    assert enrolling.revoke_code(code_id=code.pk, by="ada", reason="Leaked")
    assert not enrolling.revoke_code(code_id=code.pk, by="ada", reason="Leaked")
    assert host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="").status_code == 403


def test_an_id_that_was_used_with_another_name_is_refused(host: Runner) -> None:
    code = EnrolmentCodeFactory(uses=2)
    asked = body(code)
    assert host.send("POST", "enrol", asked, HTTP_AUTHORIZATION="").status_code == 201
    other = host.send("POST", "enrol", asked | {"name": "fw-2"}, HTTP_AUTHORIZATION="")
    assert (other.status_code, other.json()["code"], left(code)) == (409, "enrolment_mismatch", 1)


@pytest.mark.django_db(transaction=True)
def test_sixteen_hosts_at_once_get_exactly_the_five_tokens_of_a_code_for_five() -> None:
    host, code = Runner(), EnrolmentCodeFactory(uses=5)
    document()
    before = AgentToken.objects.count()
    answers = race(*[lambda number=number: enrol(host.twin(), code, name=f"fw-{number}") for number in range(16)])
    assert sorted(answer.status_code for answer in answers) == [201] * 5 + [403] * 11
    tokens = {answer.json()["token"] for answer in answers if answer.status_code == 201}
    assert (len(tokens), AgentToken.objects.count() - before, left(code)) == (5, 5, 0)


@pytest.mark.django_db(transaction=True)
def test_one_request_sent_eight_times_at_once_takes_one_use_and_leaves_one_live_token() -> None:
    host, code = Runner(), EnrolmentCodeFactory(uses=5)
    document()
    asked = body(code)
    answers = race(*[lambda: host.twin().send("POST", "enrol", asked, HTTP_AUTHORIZATION="")] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert left(code) == 4
    assert AgentToken.objects.filter(agent__principal_key="fw-1", revoked_at=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_name_that_is_asked_for_at_once_with_two_codes_is_given_once() -> None:
    host, codes = Runner(), [EnrolmentCodeFactory(), EnrolmentCodeFactory()]
    document()
    answers = race(*[lambda code=code: enrol(host.twin(), code) for code in codes])
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert sorted(left(code) for code in codes) == [0, 1]


@pytest.mark.django_db(transaction=True)
def test_the_runner_itself_enrols_at_this_server_and_its_token_is_let_in(live_server: Any, tmp_path: Path) -> None:
    made, token_file = enrolling.make_code(title="Rack 7", by="ada", name_prefix="fw-"), tmp_path / "token"
    options = ["--server", live_server.url, "--code-stdin", "--name", "fw-1", "--token-file", str(token_file)]
    command = [sys.executable, "-m", "agentstore_runner", "enrol", *options]
    first = subprocess.run(command, input=made.code, text=True, capture_output=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    second = subprocess.run([*command, "--force"], input=made.code, text=True, capture_output=True, check=False)
    assert (second.returncode, "enrolment_refused" in second.stderr) == (3, True)
    own = Runner(Agent.objects.get(principal_key="fw-1"), bearer=token_file.read_text().strip())
    assert own.send("GET", "agents/me").json()["principal_key"] == "fw-1"
    assert made.code not in first.stdout + second.stderr


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({"title": " "}, "/title"), ({"title": "x" * 501}, "/title"), ({"uses": 0}, "/uses"),
        ({"uses": 1001}, "/uses"), ({"hours": 0}, "/hours"), ({"hours": 9999}, "/hours"),
        ({"agent": "nobody"}, "/agent"), ({"name_prefix": "f w"}, "/name_prefix"), ({"presence": "x"}, "/presence"),
        ({"agent_labels": {"a": "\0"}}, "/agent_labels/a"), ({"agent_title": "\0"}, "/agent_title"),
    ],
)  # fmt: skip
def test_a_code_that_cannot_be_is_refused_at_its_place(db: None, said: dict[str, Any], place: str) -> None:
    with pytest.raises(Invalid) as refused:
        enrolling.make_code(**{"title": "Rack 7", "by": "ada"} | said)
    assert [problem.pointer for problem in refused.value.problems] == [place]


def test_a_code_for_one_agent_makes_no_others(db: None) -> None:
    agent = AgentFactory()
    with pytest.raises(Invalid):
        enrolling.make_code(title="Rack 7", by="ada", agent=agent.principal_key, name_prefix="fw-")
    made = enrolling.make_code(title="Rack 7", by="ada", agent=agent.principal_key)
    assert EnrolmentCode.objects.get(pk=made.code_id).agent == agent
