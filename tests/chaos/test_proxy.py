"""What the proxy promises: every fault does what its name says, clients stay with it, and nothing else is changed."""

import contextlib
import gc
import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import plain_messages as messages
from producing import deliver, idempotent_producer
from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.testing.broker import FaultyBroker
from semel.wire.frames import parse_response_header
from semel.wire.versions import API_VERSIONS, METADATA


@pytest.fixture
def proxy(semel_broker: FaultyBroker) -> Iterator[ChaosProxy]:
    with ChaosProxy(semel_broker.bootstrap) as proxy:
        yield proxy


def stored(broker: FaultyBroker) -> list[bytes | None]:
    return [record.value for record in broker.log("payments")]


METADATA_FLAGS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


class RawClient:
    """A socket that speaks in frames."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)

    def ask(self, api_key: int, version: int, **values: object) -> None:
        request = messages.build_request(api_key, version, **values)
        self.socket.sendall(messages.encode_request(api_key, version, 7, "raw", request))

    def receive_all(self) -> bytes:
        """What arrives until the connection ends. ConnectionResetError if it ends by a reset."""
        received = b""
        while chunk := self.socket.recv(65536):
            received += chunk
        return received

    def receive_frame(self) -> bytes:
        return self._receive(struct.unpack(">i", self._receive(4))[0])

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            assert chunk, "the connection ended too early"
            received += chunk
        return received


def test_records_pass_unchanged_where_no_fault_strikes(semel_broker: FaultyBroker, proxy: ChaosProxy) -> None:
    assert deliver(idempotent_producer(proxy), "payments", [b"a", b"b"]) == [0, 1]
    assert stored(semel_broker) == [b"a", b"b"]
    assert proxy.fired == {}


def test_a_dropped_ack_is_dropped_after_the_commit_and_the_retry_is_stored_once(
    semel_broker: FaultyBroker, proxy: ChaosProxy
) -> None:
    producer = idempotent_producer(proxy)
    deliver(producer, "payments", [b"first"])
    proxy.arm(Fault.DROP_ACK)
    assert deliver(producer, "payments", [b"second"]) == [1]
    assert stored(semel_broker) == [b"first", b"second"]
    assert proxy.fired == {Fault.DROP_ACK: 1}


def test_without_idempotence_a_dropped_ack_stores_twice(semel_broker: FaultyBroker, proxy: ChaosProxy) -> None:
    """The fault is real: it strikes after the commit."""
    proxy.arm(Fault.DROP_ACK)
    settings = {"bootstrap.servers": proxy.bootstrap, "log_level": 0, "retry.backoff.ms": 10, "linger.ms": 0}
    deliver(Producer(settings), "payments", [b"100 EUR"])
    assert stored(semel_broker) == [b"100 EUR"] * 2


@pytest.mark.parametrize("fault", list(Fault))
def test_an_idempotent_producer_survives_each_fault(
    semel_broker: FaultyBroker, proxy: ChaosProxy, fault: Fault
) -> None:
    producer = idempotent_producer(proxy)
    deliver(producer, "payments", [b"before"])
    proxy.plan.hang_ms = 100
    proxy.arm(fault, times=3)
    for number in range(6):
        deliver(producer, "payments", [str(number).encode()])
    assert stored(semel_broker) == [b"before", *(str(number).encode() for number in range(6))]
    assert proxy.fired[fault] == 3


def test_nothing_passes_on_any_connection_until_a_hang_is_over(semel_broker: FaultyBroker, proxy: ChaosProxy) -> None:
    producer = idempotent_producer(proxy)
    deliver(producer, "payments", [b"before"])
    proxy.plan.hang_ms = 600_000
    proxy.arm(Fault.HANG)
    producer.produce("payments", b"meanwhile")
    assert producer.flush(0.3) == 1
    assert stored(semel_broker) == [b"before"]
    proxy.plan.hang_ms = 1
    proxy.arm(Fault.HANG)
    deliver(idempotent_producer(proxy), "payments", [b"elsewhere"])
    assert producer.flush(30) == 0
    assert sorted(value or b"" for value in stored(semel_broker)) == [b"before", b"elsewhere", b"meanwhile"]
    assert proxy.fired == {Fault.HANG: 2}


def test_clients_are_led_to_the_proxy_and_never_past_it(proxy: ChaosProxy) -> None:
    described = AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0}).list_topics(timeout=30)
    assert [f"{broker.host}:{broker.port}" for broker in described.brokers.values()] == [proxy.bootstrap]


def test_an_address_of_ipv6_is_printed_as_clients_take_it() -> None:
    with ChaosProxy("[::1]:9092", advertise="::1") as proxy:
        host, _, port = proxy.bootstrap.rpartition(":")
    assert (host, port.isdecimal()) == ("[::1]", True)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 8, 9, 12, 13])
def test_addresses_are_replaced_in_every_version_of_metadata(proxy: ChaosProxy, version: int) -> None:
    client = RawClient(proxy.bootstrap)
    client.ask(METADATA, version, topics=[], **METADATA_FLAGS)
    frame = client.receive_frame()
    correlation_id, body = parse_response_header(METADATA, version, frame)
    answer = messages.decode_response(METADATA, version, frame[body:])
    assert correlation_id == 7
    assert [f"{broker.host}:{broker.port}" for broker in answer.brokers] == [proxy.bootstrap]


def test_a_truncated_answer_ends_in_the_middle_of_its_frame(proxy: ChaosProxy) -> None:
    whole = RawClient(proxy.bootstrap)
    whole.ask(API_VERSIONS, 4, client_software_name="raw", client_software_version="1")
    frame = whole.receive_frame()
    proxy.arm(Fault.TRUNCATE)
    client = RawClient(proxy.bootstrap)
    client.ask(API_VERSIONS, 4, client_software_name="raw", client_software_version="1")
    received = client.receive_all()
    assert 0 < len(received) < len(frame) + 4
    assert (struct.pack(">i", len(frame)) + frame).startswith(received)


def test_a_reset_resets(proxy: ChaosProxy) -> None:
    proxy.arm(Fault.RESET)
    client = RawClient(proxy.bootstrap)
    client.ask(API_VERSIONS, 0)
    with pytest.raises(ConnectionResetError):
        client.receive_all()


def test_a_dribbled_answer_arrives_whole(proxy: ChaosProxy) -> None:
    proxy.arm(Fault.DRIBBLE, times=2)
    client = RawClient(proxy.bootstrap)
    client.ask(METADATA, 12, topics=[], **METADATA_FLAGS)
    frame = client.receive_frame()
    _, body = parse_response_header(METADATA, 12, frame)
    assert messages.decode_response(METADATA, 12, frame[body:]).brokers
    assert proxy.fired == {Fault.DRIBBLE: 2}


def test_bytes_that_are_no_frame_end_the_connection(proxy: ChaosProxy) -> None:
    client = RawClient(proxy.bootstrap)
    client.socket.sendall(b"\xff" * 64)
    assert client.receive_all() == b""


def test_a_broker_that_is_not_there_is_a_closed_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    with ChaosProxy(nobody) as proxy:
        assert RawClient(proxy.bootstrap).receive_all() == b""


def test_a_proxy_that_stops_while_clients_come_leaves_nothing_undone(caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.ExitStack() as closing:
        proxy = ChaosProxy("127.0.0.1:1").start()
        host, port = proxy.bootstrap.split(":")
        for _ in range(50):
            closing.enter_context(socket.create_connection((host, int(port))))
        proxy.stop()
        # Whatever has been left pending is told of when it is collected.
        gc.collect()
    assert caplog.messages == []


def test_the_same_seed_makes_the_same_plan() -> None:
    def faults(seed: int) -> list[Fault | None]:
        plan = FaultPlan(dict.fromkeys(Fault, 0.1), seed=seed)
        chance = plan.chance(1)
        return [plan.draw(chance, tuple(Fault)) for _ in range(200)]

    assert faults(7) == faults(7)
    assert faults(7) != faults(8)


def test_a_calm_plan_strikes_nobody() -> None:
    plan = FaultPlan(dict.fromkeys(Fault, 1.0))
    plan.arm(Fault.CUT)
    plan.calm()
    assert plan.draw(plan.chance(1), tuple(Fault)) is None


def test_odds_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        FaultPlan({Fault.CUT: 2})
