"""How often a runner is asked to beat: often enough to keep its lease, and to hear of a cancel."""

import pytest

from jobs.services.execution import heartbeat_seconds

CANCELLED_WITHIN_S = 10


@pytest.mark.parametrize("lease", [1, 3, 15, 90, 86_400])
def test_two_heartbeats_of_a_lease_may_fail_and_a_cancel_leaves_time_to_stop(lease: int) -> None:
    pace = heartbeat_seconds(lease)
    assert pace >= 1
    assert pace * 3 <= max(lease, 3)
    assert pace * 2 <= CANCELLED_WITHIN_S
