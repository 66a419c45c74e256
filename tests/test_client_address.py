"""Which address a request is believed to come from."""

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from agentstore.client_address import client_address


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, "1.2.3.4", "127.0.0.1"),
        (1, "1.2.3.4", "1.2.3.4"),
        (1, "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        (2, "6.6.6.6, 1.2.3.4, 10.0.0.1", "1.2.3.4"),
        (2, "1.2.3.4", "1.2.3.4"),
        (1, "", "127.0.0.1"),
        (1, "<script>", "127.0.0.1"),
        (1, "::1", "::1"),
    ],
)
def test_only_what_trusted_proxies_appended_counts(
    settings: Settings, proxies: int, forwarded: str, expected: str
) -> None:
    settings.TRUSTED_PROXIES = proxies
    assert client_address(RequestFactory().get("/", headers={"X-Forwarded-For": forwarded})) == expected
