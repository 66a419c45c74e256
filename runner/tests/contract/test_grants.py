"""What a target gives: origins in one spelling, hosts, secrets, and the addresses of the machine itself."""

from typing import Any

import pytest
from agentstore_runner.contract.addresses import OffTargetError, split
from agentstore_runner.contract.grants import Grant, is_local, origin, problems, read

GRANT = Grant(
    name="Shop",
    origins=("https://shop.example", "https://shop.example:8443"),
    hosts=("cdn.example", "api.example:8443", "*.img.example"),
    secrets=("UAT_SHOP_PASSWORD",),
    environment="staging",
)

HOSTS = [f"/target/allow_hosts/{n}" for n in range(3)]


def spec(base_url: str = "https://shop.example/start", **more: Any) -> dict[str, Any]:
    target = {"base_url": base_url, **more.pop("target", {})}
    return {"version": 1, "target": target, "checks": [{"id": "a", "title": "A", "steps": []}], **more}


def pointers(asked: dict[str, Any], grant: Grant = GRANT) -> list[str]:
    return [problem.pointer for problem in problems(asked, grant)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Shop.Example", "https://shop.example"),
        ("https://shop.example:443/a/b", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("https://shop.example:8443/", "https://shop.example:8443"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("http://[::1]/", "http://[::1]"),
    ],
)
def test_an_origin_has_one_spelling(url: str, expected: str) -> None:
    assert origin(url) == expected == origin(expected)


@pytest.mark.parametrize(
    "url",
    ["ftp://shop.example", "shop.example", "https://a@shop.example", "https://shop.example\\@evil.example", "https://"],
)
def test_what_is_no_web_address_has_no_origin(url: str) -> None:
    with pytest.raises(OffTargetError):
        origin(url)


def test_a_grant_survives_its_way_to_the_runner() -> None:
    assert read(GRANT.document()) == GRANT


@pytest.mark.parametrize("field", list(GRANT.document()))
@pytest.mark.parametrize("value", [None, 7, {}, [7], "…"])
def test_a_grant_that_cannot_be_read_is_no_grant(field: str, value: object) -> None:
    document = {**GRANT.document(), field: value}
    if isinstance(value, str) and isinstance(GRANT.document()[field], str):
        assert read(document)
    else:
        with pytest.raises(ValueError, match=field):
            read(document)
    with pytest.raises(ValueError, match=field):
        read({name: item for name, item in document.items() if name != field})


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (spec(), []),
        (spec("https://shop.example:8443"), []),
        (spec("http://shop.example"), ["/target/base_url"]),
        (spec("https://shop.example:9443"), ["/target/base_url"]),
        (spec("https://shop.example.evil.example"), ["/target/base_url"]),
        (spec(target={"allow_hosts": ["cdn.example", "cdn.example:444", "api.example:8443"]}), []),
        (spec(target={"allow_hosts": ["shop.example:8443", "shop.example"]}), []),
        (spec(target={"allow_hosts": ["a.img.example", "*.img.example", "*.a.img.example", "a.img.example:1"]}), []),
        (spec(target={"allow_hosts": ["api.example", "api.example:8444"]}), HOSTS[:2]),
        (spec(target={"allow_hosts": ["img.example", "*.example", "evilimg.example"]}), HOSTS),
        (spec(target={"allow_hosts": ["*.cdn.example", "shop.example:22"]}), HOSTS[:2]),
        (spec(target={"environment": "staging"}), []),
        (spec(target={"environment": "production"}), ["/target/environment"]),
        (spec(secrets={"pw": {"env": "UAT_SHOP_PASSWORD"}}), []),
        (spec(secrets={"pw": {"env": "UAT_OTHER"}}), ["/secrets/pw/env"]),
        (spec(flags={"trace": "never"}), []),
        (spec(flags={"trace": "on-failure"}), ["/flags/trace"]),
    ],
)  # fmt: skip
def test_a_spec_gets_what_its_target_gives_and_no_more(asked: dict[str, Any], expected: list[str]) -> None:
    assert pointers(asked) == expected


def test_an_environment_that_the_target_does_not_name_is_the_authors_own_label() -> None:
    grant = Grant(name="Shop", origins=GRANT.origins)
    assert pointers(spec(target={"environment": "production"}), grant) == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "127.1", "0x7f.1", "2130706433",
        "017700000001", "0.0.0.0", "0", "::1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "169.254.169.254", "0xa9fea9fe", "fe80::1", "fd00:ec2::254",
    ],
)  # fmt: skip
def test_the_machine_itself_and_its_link_are_known_in_every_spelling(host: str) -> None:
    assert is_local(host)
    literal = f"[{host}]" if ":" in host else host.rstrip(".")
    url = f"http://{literal}"
    allowed = {"name": "Own", "origins": (origin(url),)}
    assert pointers(spec(url), Grant(**allowed)) == ["/target/base_url"]
    assert pointers(spec(url), Grant(**allowed, allow_local=True)) == []


@pytest.mark.parametrize(
    "host",
    ["shop.example", "localhost.example", "10.0.0.1", "192.168.1.1", "172.16.0.1", "8.8.8.8", "128.0.0.1", "fd00::1",
     "2001:db8::1", "::ffff:8.8.8.8", "127.0.0.1.example", ""],
)  # fmt: skip
def test_other_machines_are_not_the_machine_itself(host: str) -> None:
    assert not is_local(host)


def test_what_a_grant_allows_has_its_host_and_its_port() -> None:
    for url in ("https://shop.example/x", "http://shop.example", "https://shop.example:8443", "http://a.img.example:7"):
        assert GRANT.allows(split(url)), url
    for url in ("https://shop.example:22", "https://img.example", "https://api.example", "https://evil.example"):
        assert not GRANT.allows(split(url)), url
