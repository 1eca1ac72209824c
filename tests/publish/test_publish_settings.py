"""What would break the promise is refused by name, before anybody is asked; the rest reaches the client."""

from __future__ import annotations

from typing import Any

import pytest

from semel.publish import Publisher, PublishRefused
from semel.publish.clients import NAME_LENGTH_MAX, settings_of


def settled(**client: Any) -> dict[str, Any]:
    client = {name.replace("_", "."): value for name, value in client.items()}
    return dict(settings_of("h:1", "orders", "refuse", 60.0, None, client).producer)


@pytest.mark.parametrize(
    "client",
    [
        {"transactional.id": "mine"},
        {"enable.idempotence": False},
        {"enable.idempotence": "false"},
        {"acks": 1},
        {"acks": "0"},
        {"request.required.acks": 1},
        {"bootstrap.servers": "h:1"},
        {"isolation.level": "read_uncommitted"},
        {"on_delivery": print},
        {"delivery.report.only.error": False},
        {"transaction.timeout.ms": 1000},
    ],
    ids=lambda client: "-".join(client),
)
def test_a_setting_that_would_break_the_promise_is_refused_by_name(client: dict[str, Any]) -> None:
    with pytest.raises(PublishRefused, match=next(iter(client))):
        Publisher("h:1", "orders", client=client)


@pytest.mark.parametrize("client", [{"no.such.setting": 1}, {"partitioner": "bogus"}, {"security.protocol": "bogus"}])
def test_a_setting_that_the_client_does_not_know_is_refused_in_one_line(client: dict[str, Any]) -> None:
    with pytest.raises(PublishRefused, match=next(iter(client))) as refused:
        Publisher("h:1", "orders", client=client).open()
    assert "\n" not in str(refused.value)


def test_what_does_not_break_the_promise_reaches_the_client() -> None:
    assert settled(linger_ms=77)["linger.ms"] == 77
    assert settled(acks="all", enable_idempotence=True)["acks"] == "all"


def test_the_broker_ends_no_transaction_while_a_call_may_still_take() -> None:
    assert settled()["transaction.timeout.ms"] > 60_000


def test_whoever_looks_after_the_cursor_connects_like_the_producer() -> None:
    client = {"security.protocol": "SSL", "ssl.ca.location": "ca.pem", "oauth_cb": print, "linger.ms": 5}
    connection = settings_of("h:1", "orders", "refuse", 60.0, None, client).connection
    assert {name: connection.get(name) for name in client} == {**client, "linger.ms": None}


def test_a_password_does_not_show() -> None:
    assert "swordfish" not in repr(settings_of("h:1", "a", "refuse", 60.0, None, {"sasl.password": "swordfish"}))


@pytest.mark.parametrize("name", ["", "with space", "a/b", "x" * (NAME_LENGTH_MAX + 1)])
def test_a_name_that_can_be_no_topic_is_refused(name: str) -> None:
    with pytest.raises(PublishRefused, match="is no name for a publisher"):
        Publisher("h:1", name)


@pytest.mark.parametrize(("options", "word"), [({"gaps": "maybe"}, "gaps"), ({"timeout_seconds": 0}, "timeout")])
def test_an_option_that_has_no_meaning_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(PublishRefused, match=word):
        Publisher("h:1", "orders", **options)
