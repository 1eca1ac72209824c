"""Nothing a client does makes the broker grow beyond its named limits, and an honest client beside it is served.

The tests look at the broker's own counters: the limits are promises about them.
"""

import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from watched import serving

import plain_messages as messages
from asking import Asker, ConnectionEnded, at
from eventually import eventually
from process_memory import memory_bytes
from semel.log.broker.broker import Broker
from semel.log.broker.connection import PROGRESS_BYTES, UNSENT_BYTES_HIGH, Connection
from semel.testing.served import ServedBroker
from semel.wire.frames import parse_response_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
)

MEGABYTE = 1024 * 1024


def the_connection(broker: Broker) -> Connection:
    (connection,) = broker.connections
    return connection


def has_ended(asker: Asker) -> bool:
    try:
        asker.read()
    except (ConnectionEnded, ConnectionResetError):
        return True
    return False


def fetch_frame(
    topic: str, correlation_id: int = 0, *, wait_ms: int = 0, bytes_min: int = 1, partitions: int = 1
) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 2**31 - 1}
    partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    request = messages.build_request(
        FETCH,
        11,
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=2**31 - 1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition] * partitions}],
        forgotten_topics_data=[],
        rack_id="",
    )
    return messages.encode_request(FETCH, 11, correlation_id, "test", request)


def produce_frame(topic: str, size: int, *, acks: int = -1, partition: int = 0) -> bytes:
    batch = bytes(encode_batch([Record(b"x" * size)]))
    request = messages.build_request(
        PRODUCE,
        9,
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    )
    return messages.encode_request(PRODUCE, 9, 0, "test", request)


def correlation_id_of(frame: bytes) -> int:
    return parse_response_header(FETCH, 11, frame)[0]


def fill(asker: Asker, topic: str, megabytes: int) -> None:
    asker.create(topic, max_message_bytes=str(2 * MEGABYTE))
    for _ in range(megabytes):
        asker.produce(topic, [Record(b"x" * MEGABYTE)])


def send_without_reading(asker: Asker, frame: bytes, times: int) -> None:
    """Send as often as the broker takes it, which is not often if it does what it should."""
    asker._socket.settimeout(1)
    with suppress(TimeoutError):
        for _ in range(times):
            asker.post(frame)
    asker._socket.settimeout(30)


# -- connections and requests ------------------------------------------------------------------------------------------


def test_connections_beyond_the_limit_are_closed_and_those_that_leave_make_room() -> None:
    # One address has half of the places.
    with serving(connections_max=4) as broker:
        first, second = broker.connect(), broker.connect()
        first(API_VERSIONS, 0)
        second(API_VERSIONS, 0)
        assert has_ended(broker.connect())
        assert broker.look(lambda b: b.metrics.connections_refused) == 1
        first.close()
        broker.wait(lambda b: b.metrics.connections_open == 1)
        broker.connect()(API_VERSIONS, 0)
        second(API_VERSIONS, 0)


def test_requests_beyond_the_limit_wait_unread_and_are_answered_in_order() -> None:
    with serving(requests_in_flight_max=4) as broker:
        honest, eager = broker.connect(), broker.connect()
        honest.create("quiet")
        for number in range(10):
            eager.post(fetch_frame("quiet", number, wait_ms=60_000))
        broker.wait(lambda b: b.waiting_partitions == 4)
        honest.produce("quiet", at(1))
        assert [correlation_id_of(eager.read()) for _ in range(10)] == list(range(10))


def test_partitions_of_waiting_fetches_are_limited_and_the_fetch_beyond_is_answered_at_once() -> None:
    with serving(waiting_partitions_max=3) as broker:
        honest, waiting, beyond = broker.connect(), broker.connect(), broker.connect()
        honest.create("quiet")
        waiting.post(fetch_frame("quiet", wait_ms=60_000, partitions=3))
        broker.wait(lambda b: b.waiting_partitions == 3)
        beyond.post(fetch_frame("quiet", 7, wait_ms=60_000))
        assert correlation_id_of(beyond.read()) == 7
        honest.produce("quiet", at(1))
        waiting.read()
        assert broker.look(lambda b: b.waiting_partitions) == 0


def test_a_client_that_leaves_takes_its_waiting_fetches_along() -> None:
    with serving() as broker:
        honest, leaving = broker.connect(), broker.connect()
        honest.create("quiet")
        leaving.post(fetch_frame("quiet", wait_ms=60_000))
        broker.wait(lambda b: b.waiting_partitions == 1)
        leaving.close()
        broker.wait(lambda b: b.waiting_partitions == 0)
        assert broker.look(lambda b: [len(p.watchers) for p in b.log.state.partitions.all()]) == [0]


def test_a_client_that_stops_sending_still_gets_every_answer_it_asked_for() -> None:
    with serving(requests_in_flight_max=2) as broker:
        honest, half_closed = broker.connect(), broker.connect()
        honest.create("quiet")
        for number in range(9):
            half_closed.post(fetch_frame("quiet", number, wait_ms=60_000))
        broker.wait(lambda b: b.waiting_partitions == 2)
        half_closed._socket.shutdown(socket.SHUT_WR)
        honest.produce("quiet", at(1))
        assert [correlation_id_of(half_closed.read()) for _ in range(9)] == list(range(9))
        assert has_ended(half_closed)


def test_nothing_is_served_behind_a_request_that_broke_the_connection() -> None:
    """With acks=0 an error is an end: what came behind it must not be stored as if nothing had happened."""
    with serving() as broker:
        asker = broker.connect()
        asker.create("payments")
        asker.post(produce_frame("payments", 10, acks=0, partition=9) + produce_frame("payments", 10, acks=0))
        assert has_ended(asker)
        assert broker.look(lambda b: b.metrics.accepted_batches) == 0


# -- memory on the way in ----------------------------------------------------------------------------------------------


def test_a_size_that_is_merely_announced_costs_nothing() -> None:
    with serving() as broker:
        asker = broker.connect()
        asker.post(struct.pack(">ihh", 90 * MEGABYTE, PRODUCE, 9) + bytes(100))
        broker.wait(lambda b: b.metrics.bytes_in == 108)
        assert broker.look(lambda b: b.receive_memory.taken_bytes) == 0


def test_a_frame_beyond_the_limit_ends_the_connection_before_it_is_read() -> None:
    with serving(frame_bytes_max=1000) as broker:
        asker = broker.connect()
        asker.post(struct.pack(">i", 1001))
        assert has_ended(asker)


def test_only_a_request_with_records_may_be_large() -> None:
    with serving() as broker:
        asker = broker.connect()
        asker.post(struct.pack(">ihh", 5 * MEGABYTE, METADATA, 12))
        assert has_ended(asker)


def test_large_requests_share_the_memory_for_them_and_all_are_served() -> None:
    with serving(receive_bytes_max=2 * MEGABYTE) as broker:
        askers = [broker.connect() for _ in range(6)]
        askers[0].create("large", max_message_bytes=str(2 * MEGABYTE))
        frame = produce_frame("large", 900_000)
        # All but the last byte of each, so that they compete; then the last byte of all.
        for asker in askers:
            asker._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MEGABYTE)
            asker.post(frame[:400_000])
        for asker in askers:
            asker.post(frame[400_000:])
        for asker in askers:
            asker.read()
            # One of them at a time may exceed the limit.
            assert broker.look(lambda b: b.receive_memory.taken_bytes) <= 2 * MEGABYTE + len(frame)
        assert broker.look(lambda b: b.metrics.accepted_batches) == 6


def test_large_requests_that_never_end_keep_nobody_at_another_address_waiting() -> None:
    with serving(receive_bytes_max=4 * MEGABYTE) as broker:
        honest = broker.connect()
        honest.create("large", max_message_bytes=str(2 * MEGABYTE))
        frame = produce_frame("large", 1_500_000)
        greedy = [broker.connect(source="127.0.0.2") for _ in range(8)]
        for one in greedy:
            one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MEGABYTE)
            one.post(frame[:-1])

        def has_all_it_gets(connection: Connection) -> bool:
            buffer = connection._buffer
            return buffer.is_too_small or len(buffer) == len(frame) - 1

        broker.wait(lambda b: sum(map(has_all_it_gets, b.connections)) == len(greedy))
        for _ in range(3):
            honest.send(produce_frame("large", 900_000))
        assert broker.look(lambda b: b.metrics.accepted_batches) == 3
        # Those that wait are served all the same, one after the other.
        for one in greedy:
            one.post(frame[-1:])
        for one in greedy:
            one.read()
        for one in (honest, *greedy):
            one.close()
        broker.wait(lambda b: not b.connections and not b.receive_memory._of_address)


def test_a_client_that_sent_something_large_long_ago_keeps_no_memory_that_others_need() -> None:
    with serving(receive_bytes_max=1_300_000) as broker:
        idle, busy = broker.connect(), broker.connect()
        idle.create("large", max_message_bytes=str(2 * MEGABYTE))
        frame = produce_frame("large", 600_000)
        idle.send(frame)
        assert broker.look(lambda b: b.receive_memory.taken_bytes) > MEGABYTE / 2, (
            "it is kept as long as nobody else needs it"
        )
        busy.send(frame)
        assert broker.look(lambda b: b.metrics.accepted_batches) == 2


def test_a_connection_that_waits_for_room_is_not_taken_for_one_that_stalls() -> None:
    with serving(receive_bytes_max=MEGABYTE) as broker:
        askers = [broker.connect() for _ in range(3)]
        askers[0].create("large", max_message_bytes=str(2 * MEGABYTE))
        frame = produce_frame("large", 1_500_000)
        for asker in askers:
            asker._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MEGABYTE)
            asker.post(frame[:700_000])

        def stalling_for_want_of_room(inner: Broker) -> list[bool]:
            return [connection.is_stalled for connection in inner.connections if connection._buffer.is_too_small]

        assert eventually(lambda: broker.look(stalling_for_want_of_room)), "nobody waits for room"
        assert not any(broker.look(stalling_for_want_of_room))
        for asker in askers:
            asker.post(frame[700_000:])
        for asker in askers:
            asker.read()


# -- memory on the way out ---------------------------------------------------------------------------------------------


def test_answers_that_are_not_taken_stop_the_reading_of_requests() -> None:
    with serving(fetch_answer_bytes_max=2 * MEGABYTE) as broker:
        honest, silent = broker.connect(), broker.connect()
        fill(honest, "data", 8)
        send_without_reading(silent, fetch_frame("data"), 20_000)
        assert 0 < broker.look(lambda b: b.unsent_bytes) <= UNSENT_BYTES_HIGH + 3 * MEGABYTE
        assert len(honest.send(fetch_frame("data"))) > MEGABYTE


def test_answers_behind_one_that_waits_are_limited_like_those_in_the_socket() -> None:
    with serving(fetch_answer_bytes_max=2 * MEGABYTE) as broker:
        honest, clever = broker.connect(), broker.connect()
        fill(honest, "data", 4)
        honest.create("quiet")
        clever.post(fetch_frame("quiet", 0, wait_ms=60_000))
        for number in range(1, 60):
            clever.post(fetch_frame("data", number))
        broker.wait(lambda b: b.unsent_bytes > 0)
        honest.produce("data", at(1))
        assert broker.look(lambda b: b.unsent_bytes) <= UNSENT_BYTES_HIGH + 3 * MEGABYTE
        honest.produce("quiet", at(1))
        assert [correlation_id_of(clever.read()) for _ in range(60)] == list(range(60))
        # What a socket still held when it was last looked at counts until it is looked at again.
        broker.keep_house()
        assert broker.look(lambda b: b.unsent_bytes) == 0


def test_a_client_that_takes_no_answer_in_time_is_ended_and_its_memory_is_free() -> None:
    with serving(stalled_connection_ms_max=0) as broker:
        silent = broker.connect()
        fill(silent, "data", 8)
        send_without_reading(silent, fetch_frame("data"), 10)
        broker.wait(lambda b: the_connection(b).is_stalled)
        broker.keep_house()
        broker.wait(lambda b: b.metrics.connections_open == 0)
        assert broker.look(lambda b: b.unsent_bytes) == 0


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_request_that_never_ends_ends_its_connection() -> None:
    with serving(stalled_connection_ms_max=0) as broker:
        asker = broker.connect()
        asker.post(struct.pack(">ihh", 1000, METADATA, 12))
        broker.wait(lambda b: b.metrics.bytes_in == 8)
        broker.keep_house()
        assert has_ended(asker)


def test_one_byte_at_a_time_is_no_progress_but_many_are() -> None:
    with serving() as broker:
        slow = broker.connect()
        slow.post(struct.pack(">ihh", 10 * MEGABYTE, PRODUCE, 9))
        broker.wait(lambda b: b.metrics.bytes_in == 8)
        began = broker.look(lambda b: the_connection(b).last_progress_at)
        for count in range(1, 20):
            slow.post(b"x")
            broker.wait(lambda b, count=count: b.metrics.bytes_in == 8 + count)
        assert broker.look(lambda b: the_connection(b).last_progress_at) == began
        # The loop counts in milliseconds.
        broker.wait(lambda b: b.clock.uptime() > began)
        slow.post(bytes(PROGRESS_BYTES))
        broker.wait(lambda b: b.metrics.bytes_in == 27 + PROGRESS_BYTES)
        assert broker.look(lambda b: the_connection(b).last_progress_at) > began


def test_an_idle_connection_is_closed_and_one_that_waits_for_an_answer_is_not() -> None:
    with serving(idle_connection_ms_max=0) as broker:
        waiting, idle = broker.connect(), broker.connect()
        waiting.create("quiet")
        waiting.post(fetch_frame("quiet", 7, wait_ms=60_000))
        broker.wait(lambda b: b.waiting_partitions == 1)
        idle(API_VERSIONS, 0)
        broker.keep_house()
        assert has_ended(idle)
        honest = broker.connect()
        honest.produce("quiet", at(1))
        assert correlation_id_of(waiting.read()) == 7


def test_a_client_that_had_to_wait_for_us_owes_nothing() -> None:
    """What keeps the rest of its requests unread is a limit of ours, so no deadline of its runs."""
    with serving(requests_in_flight_max=1, stalled_connection_ms_max=0) as broker:
        honest = broker.connect()
        honest.create("quiet")
        eager = broker.connect()
        eager.post(fetch_frame("quiet", 0, wait_ms=60_000) + fetch_frame("quiet", 1, wait_ms=60_000))
        broker.wait(lambda b: b.waiting_partitions == 1)
        broker.keep_house()
        honest.produce("quiet", at(1))
        assert [correlation_id_of(eager.read()) for _ in range(2)] == [0, 1]


# -- floods ------------------------------------------------------------------------------------------------------------


def test_a_flood_of_nonsense_leaves_nothing_behind() -> None:
    with serving() as broker:
        honest = broker.connect()
        honest.create("payments")
        for number in range(300):
            with socket.create_connection(("127.0.0.1", int(broker.bootstrap.split(":")[1]))) as flooding:
                flooding.sendall(bytes([number % 256]) * (number * 7))
        assert [honest.produce("payments", at(1)) for _ in range(3)] == [0, 1, 2]
        broker.wait(lambda b: b.metrics.connections_open == 1)
        assert broker.look(lambda b: (b.receive_memory.taken_bytes, b.unsent_bytes, b.waiting_partitions)) == (0, 0, 0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_process_under_attack_stays_small_and_serves_the_honest(tmp_path: Path) -> None:
    """Unread answers, answers behind one that waits, and half-sent requests, from sixty connections at once."""
    limits = {"unsent_bytes_max": 32 * MEGABYTE, "receive_bytes_max": 32 * MEGABYTE, "fetch_answer_bytes_max": MEGABYTE}
    options = [f"--limit={name}={value}" for name, value in limits.items()]
    with ServedBroker(tmp_path, *options) as broker:
        honest = Asker(broker.bootstrap)
        fill(honest, "data", 8)
        honest.create("quiet")
        before = memory_bytes(broker.process_id)
        attackers = [Asker(broker.bootstrap) for _ in range(60)]
        half_sent = produce_frame("data", 90 * MEGABYTE)[: 2 * MEGABYTE]
        for number, attacker in enumerate(attackers):
            attacker._socket.setblocking(False)
            with suppress(BlockingIOError):
                if number % 3 == 0:
                    attacker._socket.send(half_sent)
                else:
                    waiting = fetch_frame("quiet", wait_ms=60_000) if number % 3 == 1 else b""
                    attacker._socket.send(waiting + fetch_frame("data") * 127)
        assert [honest.produce("quiet", at(1)) for _ in range(50)] == list(range(50))
        grown = memory_bytes(broker.process_id) - before
        for attacker in attackers:
            attacker.close()
        assert len(honest.send(fetch_frame("data"))) > MEGABYTE
        honest.close()
    # Each answer can be one batch more than what there is room for.
    allowed = limits["unsent_bytes_max"] + limits["receive_bytes_max"] + len(attackers) * (MEGABYTE + UNSENT_BYTES_HIGH)
    assert grown < allowed, f"it grew by {grown} bytes"
    assert broker.exit_code == 0
