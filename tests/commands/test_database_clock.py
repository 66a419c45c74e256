"""What people may say of the future is judged by the database's clock, whatever this process's own one shows."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.services import acknowledging, governance, identities
from jobs.services.errors import Invalid
from tests.factories import AgentFactory, AgentJobFactory, JobKindFactory

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def enqueue(moment: datetime) -> None:
    agent, kind = AgentFactory(), JobKindFactory()
    governance.enqueue(by="ada", agent=agent.principal_key, kind=kind.name, spec={}, expires_at=moment)


def issue(moment: datetime) -> None:
    identities.issue_token(agent_id=AgentFactory().pk, by="ada", expires_at=moment)


def pause(moment: datetime) -> None:
    identities.set_state(agent_id=AgentFactory().pk, state="paused", note="a test", until=moment, by="ada")


def mute(moment: datetime) -> None:
    failed = AgentJobFactory(status="failed", error="broken", finished_at=datetime.now(UTC))
    acknowledging.acknowledge(job_id=failed.pk, by="ada", reason="known", muted_until=moment)


@pytest.mark.parametrize("act", [enqueue, issue, pause, mute])
@pytest.mark.parametrize("astray", [400 * DAY, -400 * DAY])
def test_a_process_whose_clock_is_a_year_astray_decides_as_any_other(
    act: Callable[[datetime], None], astray: timedelta, time_machine: Any
) -> None:
    now = datetime.now(UTC)
    time_machine.move_to(now + astray)
    act(now + DAY)
    with pytest.raises(Invalid):
        act(now - DAY)
