"""A cursor comes back as it was written, and whatever is none is refused as such, never taken for another."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.publish.rules import Cursor, Instance, NoCursor, decode, encode, this_instance

NUMBERS = st.integers(-1, 2**63 - 1)
INSTANCES = st.builds(Instance, st.text(), NUMBERS, st.text(), NUMBERS)


@given(st.builds(Cursor, NUMBERS, INSTANCES, NUMBERS))
def test_a_cursor_comes_back_as_it_was_written(cursor: Cursor) -> None:
    assert decode(encode(cursor)) == cursor


def test_a_cursor_says_its_format_its_number_its_instance_and_its_time() -> None:
    told = json.loads(encode(Cursor(7, Instance("web-1", 77, "ab", 5), 6)))
    instance = {"host": "web-1", "pid": 77, "random": "ab", "since_ms": 5}
    assert told == {"format": 1, "number": 7, "instance": instance, "at_ms": 6}


@given(st.none() | st.binary())
def test_what_is_no_cursor_is_refused(value: bytes | None) -> None:
    with pytest.raises(NoCursor):
        decode(value)


@pytest.mark.parametrize("value", [b"[" * 100_000, b'{"format":1,"number":1e999,"instance":{}}'])
def test_what_python_cannot_read_is_no_cursor_either(value: bytes) -> None:
    with pytest.raises(NoCursor):
        decode(value)


def test_a_cursor_of_a_later_version_is_refused_by_its_format() -> None:
    with pytest.raises(NoCursor, match="format 2"):
        decode(encode(Cursor(7, this_instance(0), 0)).replace(b'"format":1', b'"format":2'))


def test_two_lives_of_one_process_are_two_instances() -> None:
    assert this_instance(5) != this_instance(5)
