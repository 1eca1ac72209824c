"""Two payloads have one fingerprint exactly where they are written alike, but for what JSON does not count."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.http.requests import JSON_DEPTH_MAX, canonical_json, fingerprint

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def of(body: str | bytes, content_type: str = "application/json") -> str:
    raw = body.encode() if isinstance(body, str) else body
    return fingerprint("POST", b"/payments", b"", content_type, raw)


def turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: turned(member) for name, member in reversed(value.items())}
    return [turned(member) for member in value] if isinstance(value, list) else value


@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 2]))
def test_order_of_keys_white_space_and_escapes_do_not_count(
    document: Any, ascii_only: bool, indent: int | None
) -> None:
    again = json.dumps(turned(document), ensure_ascii=ascii_only, indent=indent)
    assert of(json.dumps(document)) == of(again.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a\\\\u0000": [1]}', '{ "a\\u005cu0000":[1] }'),
        ('["\\\\", "\\"", 1]', '["\\u005c","\\u0022",1]'),
        ('["\\u0000", 1]', '[ "\\u0000",1 ]'),
        ('{"a": 1, "a": 2, "b": 3}', '{"b": 3, "a": 1, "\\u0061": 2}'),
    ],
)
def test_escapes_do_not_count_whichever_way_the_text_is_made(first: str, second: str) -> None:
    assert of(first) == of(second)


@given(DOCUMENTS, DOCUMENTS)
def test_documents_that_differ_have_fingerprints_that_differ(first: Any, second: Any) -> None:
    # As text with sorted keys, because Python holds 1, 1.0 and True for equal.
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (of(json.dumps(first)) == of(json.dumps(second))) == same


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"amount": 1.0}', '{"amount": 1.00000000000000001}'),
        ("9007199254740993.0", "9007199254740992.0"),
        ('{"a": 1, "a": 2}', '{"a": 2}'),
        ('{"a": 1, "a": 2}', '{"a": 3, "a": 2}'),
        ('{"a": 1, "a": 2}', '{"a": 2, "a": 1}'),
        ("[1, 2]", "[2, 1]"),
        ('"1"', "1"),
        ("[]", "{}"),
        ("null", '"null"'),
        ('{"a": [1], "b": 2}', '{"a": [1, {"b": 2}]}'),
        ("NaN", '"NaN"'),
        ('["\\u00001"]', "[1]"),
        ('["\\u00001", 1]', '[1, "\\u00001"]'),
        ('{"\\u00001": 1}', '{"1": 1}'),
        ('{"a": {"b": 1, "b": 1}}', '{"a": {"b": 1}}'),
        ('{"a\\\\": 1, "a\\\\": 2}', '{"a\\\\": 2}'),
        ('{"\\"": 1, "\\u0022": 2}', '{"\\"": 2}'),
        ("{", "{ "),
    ],
)
def test_nothing_is_folded(first: str, second: str) -> None:
    assert of(first) != of(second)


def test_each_part_of_the_request_counts() -> None:
    prints = {
        fingerprint("POST", b"/a", b"", "application/json", b"{}"),
        fingerprint("PATCH", b"/a", b"", "application/json", b"{}"),
        fingerprint("POST", b"/b", b"", "application/json", b"{}"),
        fingerprint("POST", b"/a", b"b", "application/json", b"{}"),
        fingerprint("POST", b"/ab", b"", "application/json", b"{}"),
        fingerprint("POST", b"/a", b"", "text/plain", b"{}"),
        fingerprint("POST", b"/a", b"", "application/json", b"[]"),
    }
    assert len(prints) == 7


def test_a_body_of_another_kind_counts_by_its_bytes() -> None:
    assert of('{"a": 1}', "text/plain") != of('{"a":1}', "text/plain")
    assert of('{"a": 1}', "application/merge-patch+json; charset=utf-8") == of(
        '{"a":1}', "application/merge-patch+json"
    )


@pytest.mark.parametrize("body", [b"\xff", b"[" * 100_000, b'{"a":' * 500 + b"1" + b"}" * 500])
def test_what_cannot_be_read_as_json_still_has_a_fingerprint(body: bytes) -> None:
    assert canonical_json(body) is None
    assert of(body) != of(body + b" ")


def test_brackets_in_strings_are_no_depth() -> None:
    assert canonical_json(json.dumps("[" * JSON_DEPTH_MAX * 2).encode()) is not None


def test_a_large_body_that_is_nearly_json_is_looked_at_once() -> None:
    # If each quote was looked for its end anew, this would take half an hour.
    assert canonical_json(b'"' + b'\\"' * 500_000) is None
