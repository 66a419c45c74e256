"""Redaction: what must go, what must stay, and what hostile input costs."""

import base64
import html
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from agentstore_runner.contract.sensitive_keys import sensitive_key
from agentstore_runner.redaction import MIN_LENGTH, Redactor
from hypothesis import given
from hypothesis import strategies as st
from redaction_corpus import LONG, NEGATIVES, POSITIVES, S


def test_the_corpus_is_large_and_says_nothing_twice() -> None:
    for texts in (POSITIVES, NEGATIVES):
        assert len(set(texts)) == len(texts) >= 120


@pytest.mark.parametrize("text", POSITIVES)
def test_a_secret_is_taken_out_of(text: str) -> None:
    redactor = Redactor()
    clean = redactor.text(text)
    assert S not in clean
    assert LONG[:20] not in clean
    assert "ABCDEFGHIJ" not in clean
    assert "[REDACTED:" in clean
    assert redactor.count >= 1


@pytest.mark.parametrize("text", POSITIVES)
def test_a_second_pass_changes_and_counts_nothing(text: str) -> None:
    clean = Redactor().text(text)
    again = Redactor()
    assert (again.text(clean), again.count) == (clean, 0)


@pytest.mark.parametrize("text", NEGATIVES)
def test_ordinary_text_stays(text: str) -> None:
    redactor = Redactor()
    assert (redactor.text(text), redactor.count) == (text, 0)


FORMS = {
    "raw": lambda value: value,
    "json": lambda value: json.dumps({"x": value}),
    "json in json": lambda value: json.dumps({"x": json.dumps({"y": value})}),
    "url": lambda value: "q=" + quote(value, safe=""),
    "html": html.escape,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 after one byte": lambda value: base64.b64encode(b"u" + value.encode() + b"tail").decode(),
    "base64 after two bytes": lambda value: base64.b64encode(b"u:" + value.encode() + b"t").decode(),
    "base64 for addresses": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
}
VALUES = ["plain-secret", 'a"b\\c<d>&é/+ ?', "日本語のパスワード", "~~~???>>>"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("form", FORMS)
def test_a_known_value_is_found_in_every_form(form: str, value: str) -> None:
    carried = FORMS[form](value)
    redactor = Redactor([value])
    clean = redactor.text(f"log line {carried} end") if "json" not in form else redactor.text(carried)
    assert redactor.count >= 1
    assert "[REDACTED:secret]" in clean
    assert carried not in clean
    if "json" in form:
        json.loads(clean)


def test_the_leaves_of_a_secret_that_is_json_are_known_as_well() -> None:
    redactor = Redactor(['{"user": "app-user", "keys": ["first-key-1"], "n": 5}'])
    assert redactor.text("login app-user with first-key-1") == "login [REDACTED:secret] with [REDACTED:secret]"


def test_a_known_value_that_is_too_short_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match=f"at least {MIN_LENGTH}") as caught:
        Redactor(["test5"])
    assert "test5" not in str(caught.value)


DOCUMENTS: dict[str, tuple[Any, Any]] = {
    "strings, lists and objects under a secret name": (
        {"password": S, "tokens": [S], "credentials": {"a": 1}},
        {"password": "[REDACTED:key]", "tokens": "[REDACTED:key]", "credentials": "[REDACTED:key]"},
    ),
    "numbers and booleans stay": (
        {"token": 5, "secret": False, "pin": None, "tokens_used": 512},
        {"token": 5, "secret": False, "pin": None, "tokens_used": 512},
    ),
    "pairs of name and value": (
        [{"name": "X-Api-Key", "value": S}, {"name": "color", "value": "red"}],
        [{"name": "X-Api-Key", "value": "[REDACTED:key]"}, {"name": "color", "value": "red"}],
    ),
    "JSON inside a string": ({"body": '{"pw": "x", "n": 1}'}, {"body": '{"pw": "[REDACTED:key]", "n": 1}'}),
    "empty values stay": ({"password": "", "tokens": []}, {"password": "", "tokens": []}),
    "a number that is a known secret": ({"order": 90210042}, {"order": "[REDACTED:secret]"}),
    "a known value as a name": ({"known-value": 1}, {"[REDACTED:secret]": 1}),
}


@pytest.mark.parametrize(("document", "clean"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_a_document_loses_only_secrets(document: Any, clean: Any) -> None:
    assert Redactor(["90210042", "known-value"]).document(document) == clean


def test_two_names_that_become_equal_lose_no_entry() -> None:
    clean = Redactor(["secret-1", "secret-2"]).document({"secret-1": 1, "secret-2": 2})
    assert sorted(clean.values()) == [1, 2]


NAMES = {
    "password": True, "userPassword": True, "PASSWORD2": True, "X-Api-Key": True, "apiKey": True, "APIKey": True,
    "client_secret": True, "idToken": True, "accessKeyId": True, "sessionId": True, "db-passwd": True, "JWT": True,
    "tokenizer": False, "keyboard": False, "tokens_used": False, "token_type": False, "author": False, "key": False,
    "secretary": False, "pageToken": False, "passwordless": False, "monkey": False, "": False, "ключ": False,
}  # fmt: skip


@pytest.mark.parametrize(("name", "secret"), NAMES.items())
def test_a_name_says_whether_it_holds_a_secret(name: str, secret: bool) -> None:
    assert sensitive_key(name) is secret


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(POSITIVES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "token", "name", "value"]) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(JSON)
def test_redaction_never_breaks_json_and_is_idempotent(value: Any) -> None:
    once = json.loads(Redactor([S]).text(json.dumps(value)))
    assert Redactor([S]).document(once) == once


@given(st.text(max_size=200))
def test_no_text_of_any_shape_breaks_redaction(text: str) -> None:
    clean = Redactor([S]).text(text)
    assert Redactor([S]).text(clean) == clean


HOSTILE = {
    "assignments": "token=" * 60_000,
    "quotes": 'token="' * 50_000,
    "backslashes": "token=" + "\\" * 300_000 + '"',
    "escaped quotes": 'token=\\\\\\"' * 30_000,
    "token prefixes": "eyJ" * 100_000,
    "half tokens": ("eyJ" + "a" * 4000 + ".") * 80,
    "key headers": ("-----BEGIN PRIVATE" + " KEY-----") * 10_000,
    "half headers": "-----BEGIN " * 30_000,
    "addresses": "a://a:" * 60_000,
    "long schemes": "a" * 300_000 + "://a:b@c",
    "inputs": "<input value=" * 25_000,
    "one input": "<input value=" + "x" * 300_000,
    "elements": "<aa>" * 75_000,
    "open JSON": '{"a":' * 60_000,
    "open lists": "[" * 300_000,
    "deep JSON": '{"a":' * 900 + "1" + "}" * 900,
    "JSON in JSON": json.dumps([json.dumps([json.dumps([json.dumps(["x"] * 20_000)])])]),
    "words": "bearer " * 45_000,
    "flags": "--a " * 75_000,
    "one word": "a" * 300_000,
    "dots": "a." * 150_000,
    "dashes": "-" * 300_000,
    "markers": "[REDACTED:key]" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_costs_time_in_proportion_to_its_length(name: str) -> None:
    # Processor time of this process, not the clock: quadratic work on 300 kB takes minutes.
    before = time.process_time()
    Redactor(["some-known-value"]).text(HOSTILE[name])
    assert time.process_time() - before < 20
