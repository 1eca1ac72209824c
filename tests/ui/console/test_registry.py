"""A record that was written with a registry is shown as its schema says; a registry that is away hides no record."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest

from console_scene import avro_order, served_registry
from semel.client.cluster import Cluster
from semel.testing.broker import FaultyBroker
from semel.ui.console import records
from semel.ui.console import registry as module
from semel.ui.console.query import Query
from semel.ui.console.registry import Registry


def test_the_page_of_records_shows_what_the_schema_says(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("orders")
    broker.seed("orders", avro_order(3).decode("latin-1"))
    with served_registry() as url:
        registry = Registry(url)
        told = registry.decoded(avro_order(3))
        assert told is not None
        assert told["schema"] == "AVRO, schema 17"
        assert json.loads(told["text"]) == {
            "id": "order-3",
            "total": "20.02",
            "placed_at": "2026-09-21T14:13:20Z",
            "items": ["book", "lamp"],
            "coupon": None,
        }
        answer = records.some_records(cluster, Query({"topic": "orders", "from": "earliest"}), registry)
        assert answer["has_registry"] is True
        assert registry.decoded(struct.pack(">bI", 0, 18) + b"x") == {
            "schema": "schema 18",
            "trouble": "the registry answers 404",
        }
        trouble = registry.decoded(avro_order(3)[:-1])
        assert trouble is not None
        assert "it is not what its schema says" in trouble["trouble"]
    # What is known is not asked again.
    assert registry.decoded(avro_order(3)) == told


def test_a_large_value_makes_no_large_page() -> None:
    with served_registry() as url:
        registry = Registry(url)
        items = 3_000
        order = avro_order(3, ["lamp"] * items)
        told = registry.decoded(order)
        assert told is not None
        assert len(told["text"]) == module.TEXT_MAX
        assert len(told["text"]) + told["left_out"] > items * len('"lamp",')
        told = registry.decoded(order[:5] + bytes(module.VALUE_BYTES_MAX))
        assert told == {
            "schema": "AVRO, schema 17",
            "trouble": "the console decodes no value of more than 1048576 bytes",
        }


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00", b"{}", b"\x01\x00\x00\x00\x11"])
def test_what_was_not_written_with_a_registry_is_shown_as_it_is(value: bytes | None) -> None:
    assert Registry("http://127.0.0.1:1").decoded(value) is None


def test_a_registry_that_is_away_is_a_sentence_beside_the_bytes() -> None:
    told = Registry("http://127.0.0.1:1").decoded(avro_order(0))
    assert told is not None
    assert "does not answer" in told["trouble"]


def test_a_registry_that_hangs_is_waited_for_once_however_many_schemas_a_page_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = Registry(f"http://127.0.0.1:{silent.getsockname()[1]}")
        for number in range(20):
            told = registry.decoded(struct.pack(">bI", 0, number) + b"x")
            assert told == {"schema": f"schema {number}", "trouble": "the registry does not answer: timed out"}
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("spoken", [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>", b""])
def test_what_is_no_registry_is_a_sentence_beside_the_bytes(spoken: bytes) -> None:
    def speak() -> None:
        with other.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(spoken)

    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=speak).start()
        told = Registry(f"http://127.0.0.1:{other.getsockname()[1]}").decoded(struct.pack(">bI", 0, 1))
    assert told is not None
    assert told["trouble"].startswith("the registry ")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8081", "file:///etc/passwd", "ftp://host", "http://"])
def test_what_is_no_address_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no address of a registry"):
        Registry(url)
