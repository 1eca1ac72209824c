"""What the console takes for a request: HTTP within its limits, and for everything else one refusal."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.ui.console.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    PageRefused,
    Request,
    as_json,
    json_response,
    read_request,
    refusal,
)
from semel.ui.console.query import Query


def read(data: bytes) -> Request | None:
    async def reading() -> Request | None:
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        reader.feed_data(data)
        reader.feed_eof()
        return await read_request(reader)

    return asyncio.run(reading())


def status_of(data: bytes) -> int:
    with pytest.raises(PageRefused) as refused:
        read(data)
    return refused.value.status


def test_a_request_is_read_with_its_query_and_headers() -> None:
    head = b"GET /api/topic?topic=a%2Fb&find=%C3%A9+x HTTP/1.1\r\nHost: localhost:1\r\nCOOKIE:a=b \r\n\r\n"
    assert read(head) == Request(
        "GET", "/api/topic", {"topic": "a/b", "find": "é x"}, {"host": "localhost:1", "cookie": "a=b"}
    )


def test_a_body_is_read_as_far_as_it_goes() -> None:
    asked = read(b"POST /do/abort HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}more")
    assert asked is not None
    assert asked.body == b"{}"


def test_a_connection_without_a_request_is_none() -> None:
    assert read(b"") is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n Host: folded\r\n\r\n", 400),
        (b"GET /?" + b"&".join([b"a=1"] * 30) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /?a=%ff HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}", 400),
    ],
)
def test_what_is_no_request_is_refused_by_its_reason(data: bytes, status: int) -> None:
    assert status_of(data) == status


@given(st.binary(max_size=300) | st.builds(lambda line, rest: line + rest, st.just(b"GET / HTTP/1.1\r\n"), st.binary()))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    """The oracle of a fuzzer: nothing else is ever raised, and each refusal can be sent."""
    answer = b""
    try:
        read(data)
    except PageRefused as refused:
        response = refusal(refused)
        answer = response.encoded_head() + response.body
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505"))


def test_numbers_that_a_browser_would_round_travel_as_text() -> None:
    largest = (1 << 63) - 1
    assert json.loads(as_json({"a": [largest, -largest, (1 << 53) - 1, True, None]})) == {
        "a": [str(largest), str(-largest), (1 << 53) - 1, True, None]
    }


def test_each_answer_forbids_what_it_does_not_need() -> None:
    head = json_response({}).encoded_head().partition(b"\r\n\r\n")[0].decode()
    assert "default-src 'self'" in head
    assert "require-trusted-types-for 'script'" in head
    assert "frame-ancestors 'none'" in head
    assert "nosniff" in head
    assert "no-store" in head
    assert "unsafe" not in head


@given(st.text(max_size=30))
def test_any_text_is_a_number_within_bounds_or_refused(text: str) -> None:
    number = 1
    with contextlib.suppress(PageRefused):
        number = Query({"page": text}).number("page", least=1, most=1_000)
    assert 1 <= number <= 1_000
