"""Which addresses belong to a target."""

import pytest
from agentstore_runner.contract.addresses import OffTargetError, Target, split

SHOP = Target("https://shop.example/app", ("cdn.example", "api.example:8443", "*.img.example"))

RESOLVED = {
    "/login": "https://shop.example/login",
    "login": "https://shop.example/app/login",
    "?q=1": "https://shop.example/app/?q=1",
    "https://shop.example/x": "https://shop.example/x",
    "http://shop.example/x": "http://shop.example/x",
    "https://shop.example:443/x": "https://shop.example:443/x",
    "https://SHOP.example/x": "https://SHOP.example/x",
    "https://cdn.example:9000/x": "https://cdn.example:9000/x",
    "https://api.example:8443/": "https://api.example:8443/",
    "https://a.b.img.example/": "https://a.b.img.example/",
}


@pytest.mark.parametrize(("address", "url"), RESOLVED.items())
def test_an_address_of_the_target_is_resolved(address: str, url: str) -> None:
    assert SHOP.resolve(address) == url


FOREIGN = [
    "https://evil.example/",
    "//evil.example/",
    "https://shop.example.evil.example/",
    "https://evilshop.example/",
    "https://shop.example:8080/",
    "https://api.example/",
    "https://img.example/",
    "https://evilimg.example/",
    "https://u:p@shop.example/",
    "https://shop.example\\@evil.example/",
    "https:\\\\evil.example",
    "/\\evil.example",
    "\thttps://evil.example/",
    "https://evil.example\n",
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "ftp://shop.example/",
    "view-source:https://shop.example/",
    "https://shop.example:99999/",
    "https://[::1/",
    "https://[",
]


@pytest.mark.parametrize("address", FOREIGN)
def test_any_other_address_is_refused(address: str) -> None:
    with pytest.raises(OffTargetError):
        SHOP.resolve(address)


def test_only_the_target_itself_receives_the_marker() -> None:
    assert SHOP.owns(split("https://shop.example/x"))
    assert not SHOP.owns(split("https://cdn.example/x"))
    assert not SHOP.owns(split("https://shop.example:8443/x"))


def test_the_hosts_for_the_resolver_have_no_ports() -> None:
    assert list(SHOP.hosts()) == ["shop.example", "cdn.example", "api.example", "*.img.example"]
    assert list(Target("http://[::1]:8000").hosts()) == ["::1"]
