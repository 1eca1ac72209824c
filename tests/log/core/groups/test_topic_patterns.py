"""Regular expressions for topics: what they match, what is refused, and that no expression keeps the broker busy."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.groups.topic_patterns import TopicPattern
from semel.wire.refusals import INVALID_REGULAR_EXPRESSION, Refused

characters = "ab.-_1"
names = st.text(characters, max_size=8)
atoms = st.sampled_from(["a", "b", "1", ".", "-", r"\.", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"\b", "^", "$"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: "(" + "|".join(options) + ")"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=patterns, name=names)
def test_an_expression_matches_what_it_matches_elsewhere(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("topic-.*", "topic-1", "my-topic-1"),
        ("^topic$", "topic", "topics"),
        ("(?i)Topic", "tOPIC", "topik"),
        ("(?i:t)opic", "Topic", "TOPIC"),
        ("t(?i)OP(?-i)ic", "topic", "tOPIC"),
        (r"\Qa.b\E.*", "a.b.c", "acb"),
        (r"a\Q.b", "a.b", "axb"),
        (r"\pN+", "12", "a"),
        (r"\p{^Lu}", "a", "A"),
        (r"[[:alpha:]]+", "abc", "ab1"),
        (r"[[:^alpha:]]", "1", "a"),
        (r"[]a]", "a", "b"),
        (r"[a-]+", "a-", "b"),
        (r"\x61\x{62}\143", "abc", "abd"),
        ("a{,2}", "never", "aa"),
        ("(?P<year>[0-9]{4})-(?<month>[0-9]{2})", "2026-11", "2026-1"),
        ("a||b", "", "ab"),
    ],
)
def test_the_syntax_of_re2_is_known(pattern: str, matching: str, other: str) -> None:
    compiled = TopicPattern(pattern)
    assert compiled.matches(matching) or matching == "never"
    assert not compiled.matches(other)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "[", "a**", "*a", "a{2}{3}", "(?=a)", "(?<!a)b", r"(a)\1", "a\\", "[b-a]", "[[:what:]]"),
        *(r"\p{Klingon}", r"\x{110000}", r"\y", "a{1001}", "a{3,2}", "(?<>a)", "(a{100}){100}", "(" * 500, "a" * 5000),
    ],
)
def test_what_is_no_expression_or_too_large_a_one_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        TopicPattern(pattern)
    assert refused.value.error == INVALID_REGULAR_EXPRESSION


@given(st.text(max_size=30) | st.text(r"ab\()[]{}|*+?^$.-:PpQEdx0,1", max_size=30))
def test_whatever_a_client_sends_is_an_expression_or_refused(text: str) -> None:
    with suppress(Refused):
        TopicPattern(text).matches("a-topic")


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*x", "((a*)*)*b", "(a|aa)+$b"])
def test_an_expression_that_others_would_never_finish_is_matched_in_passing(pattern: str) -> None:
    assert not TopicPattern(pattern).matches("a" * 249)
