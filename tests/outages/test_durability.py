"""An installation whose server may forget what it acknowledged says so."""

import pytest
from django.core.checks import Tags, run_checks
from django.db import connection


@pytest.mark.django_db
def test_a_server_that_may_lose_acknowledged_results_is_a_warning() -> None:
    def ids() -> set[str]:
        return {str(message.id) for message in run_checks(tags=[Tags.database], databases=["default"])}

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")
        assert "agentstore.synchronous_commit" in ids()
        cursor.execute("SET LOCAL synchronous_commit = on")
        assert "agentstore.synchronous_commit" not in ids()


def test_a_check_without_a_database_asks_none() -> None:
    assert not [message for message in run_checks() if str(message.id).startswith("agentstore.")]
