"""JSON from outside, specs of a kind, and the shape of a bearer, as somebody hostile would send them."""

import hashlib
import json
import math
import string
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.models import JobKind
from jobs.services import token_format
from jobs.services.documents import MAX_DEPTH, Malformed, parse, sanitise, storable_problems
from jobs.services.kinds import MAX_PROBLEMS, MAX_SPEC_BYTES, schema_problems, spec_problems

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
ANY_TEXT = st.text(st.characters())  # half surrogate pairs and NUL, too
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)


def documents(text: Any, scalars: Any = SCALARS) -> Any:
    return st.recursive(scalars | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)


# -- parse ---------------------------------------------------------------------


@given(documents(TEXT))
def test_what_json_can_say_is_read_as_it_is(document: Any) -> None:
    for ascii_only in (True, False):
        assert parse(json.dumps(document, ensure_ascii=ascii_only).encode()) == document


@given(st.binary())
def test_any_bytes_are_a_document_or_malformed(text: bytes) -> None:
    with suppress(Malformed):
        assert storable_problems(parse(text)) is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "Not JSON"),
        (b"{", "Not JSON"),
        (b"{'a': 1}", "Not JSON"),
        (b'{"a": 1,}', "Not JSON"),
        (b"[1] [2]", "Not JSON"),
        (b"01", "Not JSON"),
        (b'"\x01"', "Not JSON"),
        (b"\xef\xbb\xbf{}", "Not JSON"),
        ("{}".encode("utf-16"), "Not UTF-8 at byte 0"),
        (b'"\xff"', "Not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "Not UTF-8"),
        (b"NaN", "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
        (b"1e999", "out of range"),
        (b"-1e999", "out of range"),
        (b"1" * 1001, "out of range"),
        (b'{"a": 1, "a": 1}', "The key 'a' appears twice"),
        (b'{"b": [{"a": 1, "\\u0061": 2}]}', "The key 'a' appears twice"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper than 64"),
        (b"[" * 1_000_000, "deeper than 64"),
        (b'["\\"",' * 65 + b"1" + b"]" * 65, "deeper than 64"),
    ],
)
def test_a_malformed_document_is_refused_with_the_reason(text: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'"' + b"[" * 500 + b'"',
        b'["\\\\", "[[\\"[[", {"[": "{"}]',
        b"[" + b"[]," * 500 + b"[]]",
        b"1" * 1000,
    ],
)
def test_brackets_inside_texts_and_side_by_side_are_not_deep(text: bytes) -> None:
    assert parse(text) == json.loads(text)


# -- what PostgreSQL can hold --------------------------------------------------


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"a": "x\x00"}, ["/a"]),
        ({"a\x00": 1}, ["/a\N{REPLACEMENT CHARACTER}"]),
        ([{"b": ["ok", "\ud800"]}], ["/0/b/1"]),
        ("\udfff", [""]),
        ({"~/": {"a/b~c": "\x00"}}, ["/~0~1/a~1b~0c"]),
        ({"n": math.nan, "i": math.inf, "m": -math.inf}, ["/i", "/m", "/n"]),
        ({"fine": ["😀", 1, None, True, 0.5]}, []),
    ],
)
def test_what_cannot_be_stored_is_found_with_its_place(document: Any, places: list[str]) -> None:
    assert sorted(problem.pointer for problem in storable_problems(document)) == places


@given(documents(ANY_TEXT, SCALARS | st.floats()))
def test_what_is_sanitised_can_be_stored_and_what_was_fine_is_unchanged(document: Any) -> None:
    clean, changed = sanitise(document)
    assert storable_problems(clean) == []
    assert changed == bool(storable_problems(document))
    if not changed:
        assert clean == document
    json.dumps(clean, allow_nan=False).encode()


def test_keys_that_become_equal_by_sanitising_lose_no_value() -> None:
    keys = ["a\x00", "a\ud800", "a\N{REPLACEMENT CHARACTER}"]
    clean, changed = sanitise(dict(zip(keys, (1, 2, 3), strict=True)))
    assert changed
    assert sorted(clean.values()) == [1, 2, 3]


# -- specs of a kind -----------------------------------------------------------


def kind(**schema: Any) -> JobKind:
    return JobKind(name="echo", schema={"type": "object"} | schema)


@pytest.mark.parametrize("spec", [None, 1, "text", [], True, [{}]])
def test_a_spec_is_an_object(spec: Any) -> None:
    assert [problem.message for problem in spec_problems(kind(), spec)] == ["A spec is a JSON object."]


def test_problems_point_into_the_spec() -> None:
    schema = {"properties": {"list/of~": {"items": {"type": "integer"}}}, "required": ["needed"]}
    found = spec_problems(kind(**schema), {"list/of~": [1, "two"]})
    assert sorted(problem.pointer for problem in found) == ["", "/list~1of~0/1"]


def test_a_spec_is_limited_in_bytes_not_characters() -> None:
    assert spec_problems(kind(), {"a": "x" * (MAX_SPEC_BYTES - 20)}) == []
    (problem,) = spec_problems(kind(), {"a": "€" * (MAX_SPEC_BYTES // 2)})
    assert "bytes" in problem.message


def test_no_spec_has_more_problems_than_a_person_reads() -> None:
    assert len(
        spec_problems(kind(additionalProperties=False), {"a": "\x00"} | {f"k{n}": "\x00" for n in range(200)})
    ) == (MAX_PROBLEMS)
    many = {"properties": {f"k{n}": {"type": "null"} for n in range(200)}}
    assert len(spec_problems(kind(**many), {f"k{n}": 1 for n in range(200)})) == MAX_PROBLEMS


@pytest.mark.parametrize("key", ["password", "PASSWORD", "api_token", "secret", "Authorization"])
def test_a_secret_written_out_is_refused_at_any_depth_and_a_template_is_not(key: str) -> None:
    (problem,) = spec_problems(kind(), {"a": [{"b": {key: "hunter2"}}]})
    assert problem.pointer == f"/a/0/b/{key}"
    assert "hunter2" not in problem.message
    assert spec_problems(kind(), {"a": [{"b": {key: "${secret:login}"}}]}) == []


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "object",
        {"type": "objekt"},
        {"properties": []},
        {"pattern": "("},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"$ref": "other.json"}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched(schema: Any) -> None:
    assert schema_problems(schema)


def test_a_usable_schema_has_no_problems() -> None:
    assert schema_problems({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}) == []


# -- bearers -------------------------------------------------------------------


def test_fresh_bearers_are_well_formed_and_never_the_same() -> None:
    bearers = [token_format.mint() for _ in range(500)]
    assert len(set(bearers)) == 500
    assert all(token_format.well_formed(bearer) for bearer in bearers)
    assert {len(bearer) for bearer in bearers} == {token_format.LENGTH}


def test_every_single_wrong_character_is_noticed() -> None:
    bearer = token_format.mint()
    for place in range(len(bearer)):
        for wrong in "0aZ_ \x00é":
            if wrong != bearer[place]:
                assert not token_format.well_formed(bearer[:place] + wrong + bearer[place + 1 :])


@given(st.text() | st.text(string.ascii_letters + string.digits, min_size=45, max_size=45))
def test_no_other_text_is_well_formed(text: str) -> None:
    assert not token_format.well_formed(text)
    assert not token_format.well_formed(token_format.PREFIX + text)


def test_only_the_digest_is_stored_and_what_is_shown_cannot_be_used() -> None:
    bearer = token_format.mint()
    assert token_format.digest(bearer) == hashlib.sha256(bearer.encode()).hexdigest()
    assert len(bearer) - token_format.SHOWN - 6 >= 27  # more than 128 random bits stay hidden
