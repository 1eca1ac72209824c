"""The console says of an application how many requests it answered from the store, as its counters say it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import prometheus_client
import pytest

from http_served import http_served
from semel.http.counters import CLAIMS
from semel.ui.console.applications import Applications, counted
from semel.ui.console.claims import Databases
from semel.ui.console.http import as_json
from semel.ui.console.query import Query

NOWHERE = "127.0.0.1:1"
HOURS_2 = 7_200


def answering(status: int, body: bytes, **headers: str) -> AbstractContextManager[str]:
    return http_served(lambda path: (status, headers, body))


def told(url: str) -> dict[str, Any]:
    (one,) = Applications([url]).every()
    assert as_json(one)
    return one


def test_a_replay_is_counted_where_the_application_serves_its_counters() -> None:
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        CLAIMS.add("replayed")
        before = told(url)
        CLAIMS.add("replayed")
        after = told(url)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert after["outcomes"]["replayed"] == before["outcomes"]["replayed"] + 1
    assert (after["error"], after["name"]) == (None, url.removeprefix("http://") + "/metrics")
    assert after["began_ms"] > 1_700_000_000_000


def test_what_several_workers_have_counted_is_added_up_and_divided_by_the_hours() -> None:
    text = """# HELP semel_http_claims_total Requests with a key
semel_http_claims_total{outcome="replayed",worker="1"} 30.0
semel_http_claims_total{worker="2",outcome="replayed"} 1e+01 # {trace="x"} 1.0
semel_http_claims_total{outcome="accepted"} 7.0
semel_http_claims_created{outcome="accepted"} 1.7e+09
process_start_time_seconds 1000.0
"""
    assert counted(text, now_seconds=1000 + HOURS_2) == {
        "outcomes": {"replayed": 40, "accepted": 7},
        "began_ms": 1_000_000,
        "replays_per_hour": 20.0,
    }
    assert counted(text, now_seconds=1001)["replays_per_hour"] is None, "a second says nothing of an hour"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"", "it tells no counters of HTTP keys; they appear with the first request that has a key"),
        (200, b"\xff\x00<script>" * 1000, "it tells no counters"),
        (200, b'semel_http_claims_total{outcome="replayed"} 1e+999', "a number without end"),
        (200, b'semel_http_claims_total{outcome="replayed"} 1.2.3', "'1.2.3' where a number was expected"),
        (404, b'semel_http_claims_total{outcome="replayed"} 1', "it answers 404"),
        (302, b"", "it answers 302"),
    ],
)
def test_an_application_that_tells_something_else_is_one_line(status: int, body: bytes, said: str) -> None:
    with answering(status, body, Location="http://127.0.0.1:1/") as url:
        assert said in told(url)["error"]


def test_an_application_that_is_away_hides_no_other_and_no_database() -> None:
    with answering(200, b'semel_http_claims_total{outcome="replayed"} 3.0') as url:
        answer = Databases([], [f"http://{NOWHERE}", url]).every(Query({}))
    away, here = answer["applications"]
    assert "it does not answer" in away["error"]
    assert (here["error"], here["outcomes"], here["began_ms"]) == (None, {"replayed": 3}, None)
    assert answer["databases"] == []


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9100", "file:///etc/passwd", "http://", "http://h:99999", "http://[::1"]
)
def test_what_is_no_address_of_counters_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="an application's counters have an address"):
        Applications([url])
