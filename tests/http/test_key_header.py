"""The header names one key, whichever of its two forms it has, and what is no key is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.http.requests import KEY_CHARACTERS_MAX, KeyMalformed, read_key

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=KEY_CHARACTERS_MAX)
BARE = st.text(st.sampled_from("abcXYZ0189-_.:/=+~"), min_size=1, max_size=KEY_CHARACTERS_MAX)


@given(PRINTABLE)
def test_every_printable_name_can_be_said_in_quotes(name: str) -> None:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    assert read_key([f'"{escaped}"']) == name


@given(BARE)
def test_the_bare_name_and_the_one_in_quotes_are_one_key(name: str) -> None:
    assert read_key([name]) == read_key([f'"{name}"']) == read_key([f' "{name}"\t']) == name


@given(st.text())
def test_whatever_is_sent_is_a_key_or_refused(field: str) -> None:
    try:
        key = read_key([field])
    except KeyMalformed:
        return
    assert key is not None
    assert 1 <= len(key) <= KEY_CHARACTERS_MAX
    assert key.isascii()
    assert key.isprintable()


@pytest.mark.parametrize(
    "field",
    ["", '""', "a,b", "a;b", '"a', 'a"', '"a"b', '"a";b=1', "a b", '"\\a"', "ä", '"ä"', "a\x00", "a\\b", "x" * 256],
)
def test_what_is_no_key_is_refused(field: str) -> None:
    with pytest.raises(KeyMalformed):
        read_key([field])


def test_two_headers_are_refused_and_none_is_none() -> None:
    assert read_key([]) is None
    with pytest.raises(KeyMalformed, match="2 headers"):
        read_key(["a", "a"])
