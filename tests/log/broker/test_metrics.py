"""What an operator is promised of the metrics: text that Prometheus can read, figures that agree with each other."""

import asyncio
import math
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from asking import Asker, at
from semel.log.broker.broker import Broker
from semel.log.broker.metrics_server import serve_metrics
from semel.log.small_http import CONNECTIONS_MAX, REQUEST_BYTES_MAX
from semel.wire.errors import ErrorCode
from semel.wire.records import encode_batch
from semel.wire.versions import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE
from transacting import TransactionalProducer

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
KINDS = {"counter", "gauge", "histogram"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Samples:
    """Prometheus' text format, read as its grammar says and no more leniently."""
    assert text.endswith("\n")
    samples: Samples = {}
    helped, kinds = set(), {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped, "a family is described once"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in KINDS
            assert name not in kinds, "a family has one type"
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            pairs = LABEL.findall(labels or "")
            assert ",".join(f'{key}="{text}"' for key, text in pairs) == (labels or "")
            family = re.sub("_(bucket|sum|count)$", "", name)
            family = family if kinds.get(family) == "histogram" else name
            assert family in helped
            assert family in kinds, "the type comes before the samples"
            key = (name, frozenset(pairs))
            assert key not in samples, "a series occurs once"
            samples[key] = float(value)
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def http(address: tuple[str, int], request: bytes) -> tuple[str, bytes]:
    """The status line and the body of the answer."""
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(request)
        received = b""
        while piece := client.recv(65536):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return head.decode().partition("\r\n")[0], body


def scrape(address: tuple[str, int]) -> Samples:
    status, body = http(address, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
    assert status == "HTTP/1.1 200 OK"
    return parse(body.decode())


Address = tuple[str, int]


def beside_a_broker(scenario: Callable[[Broker, Address], None], **settings: float) -> None:
    """Run a scenario in a thread while the event loop serves a broker and its metrics."""

    async def serve() -> None:
        async with Broker() as broker:
            server = await serve_metrics(broker, "127.0.0.1", 0, **settings)
            await asyncio.to_thread(scenario, broker, server.sockets[0].getsockname()[:2])
            server.close()

    asyncio.run(serve())


def test_the_outcomes_of_batches_are_counted_apart() -> None:
    def scenario(broker: Broker, metrics: Address) -> None:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        producer = asker(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60000)
        pid = producer.producer_id

        def send(sequence: int, producer_id: int = pid, partition: int = 0, corrupt: bool = False) -> int:
            batch = bytearray(encode_batch(at(1, 2), producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
            if corrupt:
                batch[-1] ^= 1
            data = [{"name": "payments", "partition_data": [{"index": partition, "records": bytes(batch)}]}]
            answer = asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            return int(answer.responses[0].partition_responses[0].error_code)

        assert [send(0), send(2), send(0), send(7), send(4, partition=9), send(4, corrupt=True)] == [0, 0, 0, 45, 3, 2]
        samples = scrape(metrics)
        outcomes = {key: value(samples, "semel_batches_total", outcome=key) for key in ("accepted", "duplicate", "gap")}
        assert outcomes == {"accepted": 2, "duplicate": 1, "gap": 1}
        assert value(samples, "semel_batches_total", outcome="refused") == 2
        assert value(samples, "semel_records_total") == 4
        assert value(samples, "semel_producer_states") == 1
        assert value(samples, "semel_topics") == value(samples, "semel_partitions") == 1
        asker.close()

    beside_a_broker(scenario)


def test_the_outcomes_of_transactions_are_counted_apart() -> None:
    def scenario(broker: Broker, metrics: Address) -> None:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        producer = TransactionalProducer(asker)
        producer.claim()
        zombie = producer.identity
        for commits in (True, True, False):
            producer.add("payments")
            assert producer.end(committed=commits) == 0
        producer.add("payments")
        samples = scrape(metrics)
        assert value(samples, "semel_open_transactions") == value(samples, "semel_transactional_ids") == 1
        producer.claim()
        assert producer.end(identity=zombie) == ErrorCode.PRODUCER_FENCED
        samples = scrape(metrics)
        outcomes = ("committed", "aborted", "fenced", "timed_out")
        assert [value(samples, "semel_transactions_total", outcome=key) for key in outcomes] == [2, 1, 1, 0]
        assert value(samples, "semel_fenced_requests_total") == 1
        asker.close()

    beside_a_broker(scenario)


def test_every_histogram_agrees_with_itself() -> None:
    def scenario(broker: Broker, metrics: Address) -> None:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        for _ in range(5):
            asker.produce("payments", at(1))
        samples = scrape(metrics)
        apis = {dict(labels)["api"] for name, labels in samples if name == "semel_request_seconds_count"}
        assert apis == {"CreateTopics", "Produce"}
        assert value(samples, "semel_request_seconds_count", api="Produce") == 5
        for api in apis:
            buckets = sorted(
                (float(dict(labels)["le"]), count)
                for (name, labels), count in samples.items()
                if name == "semel_request_seconds_bucket" and dict(labels)["api"] == api
            )
            assert [count for _, count in buckets] == sorted(count for _, count in buckets), "buckets are cumulative"
            assert buckets[-1] == (math.inf, value(samples, "semel_request_seconds_count", api=api))
            assert value(samples, "semel_request_seconds_sum", api=api) > 0
        asker.close()

    beside_a_broker(scenario)


def test_an_acknowledged_batch_is_seen_as_durable() -> None:
    def scenario(broker: Broker, metrics: Address) -> None:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        asker.produce("payments", at(1))
        samples = scrape(metrics)
        end, synced = value(samples, "semel_journal_position_bytes"), value(samples, "semel_journal_synced_bytes")
        assert end == synced > 0
        assert value(samples, "semel_journal_lag_bytes") == 0
        assert 0 < value(samples, "semel_fsyncs_total") <= value(samples, "semel_fsync_waiters_total") <= 2
        assert value(samples, "semel_up") == 1
        assert value(samples, "semel_storage_errors_total") == 0
        assert value(samples, "semel_connections") == value(samples, "semel_connections_total") == 1
        assert value(samples, "semel_received_bytes_total") > 0 < value(samples, "semel_sent_bytes_total")
        asker.close()

    beside_a_broker(scenario)


def test_a_broker_nobody_used_has_figures_too() -> None:
    beside_a_broker(lambda _, metrics: scrape(metrics) and None)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "405"),
        (b"GET /metrics HTTP/2\r\n\r\n", "505"),
        (b"nonsense\r\n\r\n", "400"),
        (b"\xff\xfe\x00\r\n\r\n", "400"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2000 + b"\r\n", "431"),
        (b"G" * (2 * REQUEST_BYTES_MAX + 1) + b"\r\n\r\n", "400"),
    ],
)
def test_whatever_is_asked_gets_an_answer_or_none_and_the_next_one_is_served(request_bytes: bytes, status: str) -> None:
    def scenario(_: Broker, metrics: Address) -> None:
        try:
            answered, _body = http(metrics, request_bytes)
            assert answered.startswith(f"HTTP/1.1 {status} ")
        except ConnectionError:
            assert status in ("400", "431"), "only what was not read to its end may be reset"
        scrape(metrics)

    beside_a_broker(scenario)


def is_shown_out(address: Address) -> bool:
    """Whether the connection of a client that says nothing ends."""
    with socket.create_connection(address, timeout=30) as silent:
        try:
            return silent.recv(1) == b""
        except ConnectionResetError:
            return True


def test_a_client_that_says_nothing_is_shown_out_at_the_deadline() -> None:
    def scenario(_: Broker, metrics: Address) -> None:
        assert is_shown_out(metrics)

    beside_a_broker(scenario, deadline_seconds=0.05)


def test_who_asks_is_answered_however_many_connections_are_silent() -> None:
    def scenario(_: Broker, metrics: Address) -> None:
        with ExitStack() as held:
            silent = [
                held.enter_context(socket.create_connection(metrics, timeout=30, source_address=(f"127.0.0.{host}", 0)))
                for host in range(1, 5)
                for _ in range(2 * CONNECTIONS_MAX)
            ]
            scrape(metrics)
            # The oldest were closed.
            assert silent[0].recv(1) == b""

    beside_a_broker(scenario)


def test_names_of_apis_are_those_of_the_protocol() -> None:
    def scenario(broker: Broker, metrics: Address) -> None:
        asker = Asker(broker.bootstrap)
        asker(API_VERSIONS, 0)
        asker(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60000)
        asker(METADATA, 4, topics=[], allow_auto_topic_creation=False)
        apis = {dict(labels)["api"] for name, labels in scrape(metrics) if name == "semel_request_seconds_count"}
        assert apis == {"ApiVersions", "InitProducerId", "Metadata"}
        asker.close()

    beside_a_broker(scenario)
