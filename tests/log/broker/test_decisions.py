"""What somebody who watches the verdicts on batches is promised: each of them in the words of the lab, or how many were
left out; and that nobody pays for it who does not watch."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import example, given
from hypothesis import strategies as st

from asking import Asker, at
from eventually import eventually
from profiled import profiled
from semel.chaos.plan import Fault
from semel.chaos.proxy import ChaosProxy
from semel.log.broker import decisions
from semel.log.broker.broker import Broker
from semel.log.broker.decisions import SUBSCRIPTIONS_MAX, Decision, Decisions, Subscription, Told, event_of
from semel.log.broker.metrics import Metrics
from semel.log.broker.metrics_server import serve_metrics
from semel.log.core.batch_checks import Verdict
from semel.log.security.listeners import Listener
from semel.wire.batch import read_header
from semel.wire.records import encode_batch
from semel.wire.sequences import ACCEPTED, DUPLICATE, FENCED, GAP, Outcome
from semel.wire.versions import INIT_PRODUCER_ID, PRODUCE

Address = tuple[str, int]


def beside_a_broker(
    scenario: Callable[[Broker, Address], None], broker: Broker | None = None, host: str = "127.0.0.1", **settings: Any
) -> None:
    """Run a scenario in a thread while the event loop serves a broker and its decisions."""

    async def serve() -> None:
        async with broker or Broker() as serving:
            server = await serve_metrics(serving, host, 0, **settings)
            await asyncio.to_thread(scenario, serving, ("127.0.0.1", server.sockets[0].getsockname()[1]))
            server.close()

    asyncio.run(serve())


def status_of(address: Address, *headers: str) -> str:
    """What a request for decisions is answered at first."""
    with socket.create_connection(address, timeout=30) as client:
        client.sendall("\r\n".join(("GET /decisions HTTP/1.1", *headers, "", "")).encode())
        return client.makefile().readline().strip()


@contextmanager
def watching(address: Address) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a stream; the first one has come."""
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(b"GET /decisions HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        lines = client.makefile()
        assert lines.readline() == "HTTP/1.1 200 OK\n"
        head = list(iter(lines.readline, "\n"))
        assert "Content-Type: text/event-stream\n" in head

        def events() -> Iterator[dict[str, Any]]:
            for line in lines:
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

        following = events()
        assert next(following)["decisions"] == []
        yield following


def decisions_of(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those that come; after a minute in which there was none, none comes any more."""
    quiet = 0
    for event in events:
        assert not any(event["left_out"].values())
        quiet = 0 if event["decisions"] else quiet + 1
        assert quiet < 5, "what is waited for was not told"
        yield from event["decisions"]


def sender(asker: Asker) -> Callable[..., None]:
    """Sends batches of two records of a new producer; the newest epoch that it may have is 1."""
    pid = asker(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60000).producer_id

    def send(sequence: int, epoch: int = 0) -> None:
        batch = bytes(encode_batch(at(1, 2), producer_id=pid, producer_epoch=epoch, base_sequence=sequence))
        data = [{"name": "payments", "partition_data": [{"index": 0, "records": batch}]}]
        asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)

    return send


def test_each_verdict_is_told_as_it_falls_in_the_words_of_the_lab() -> None:
    def scenario(broker: Broker, address: Address) -> None:
        with Asker(broker.bootstrap) as asker, watching(address) as events:
            asker.create("payments")
            send, told = sender(asker), decisions_of(events)
            send(0)
            accepted = next(told)
            assert accepted.pop("at_ms") > 0
            assert accepted.pop("producer_id") >= 0
            assert list(accepted.values()) == [1, "accepted", "payments", 0, 0, 0, 2, 0, None, None, "OK offset:0"]
            send(0)
            send(7)
            send(0, epoch=1)
            send(2, epoch=0)
            keys = ("number", "outcome", "expected", "got", "said")
            assert [[one[key] for key in keys] for one in islice(told, 4)] == [
                [2, "duplicate", None, None, "DUPLICATE offset:0"],
                [3, "gap", 2, 7, "ERROR: sequence gap (expected 2, got 7)"],
                [4, "accepted", None, None, "OK offset:2"],
                [5, "fenced", 1, 0, "ERROR: fenced (epoch 0, current 1)"],
            ]

    beside_a_broker(scenario)


def test_who_comes_later_is_told_the_counts_since_the_start() -> None:
    def scenario(broker: Broker, address: Address) -> None:
        with Asker(broker.bootstrap) as asker:
            asker.create("payments")
            send = sender(asker)
            for sequence in (0, 0, 2, 0, 9):
                send(sequence)
            with socket.create_connection(address, timeout=30) as client:
                client.sendall(b"GET /decisions HTTP/1.1\r\nHost: localhost:80\r\n\r\n")
                line = next(line for line in client.makefile() if line.startswith("data: "))
            counts = json.loads(line.removeprefix("data: "))["counts"]
            assert counts == {"accepted": 2, "duplicate": 2, "gap": 1, "fenced": 0, "refused": 0}

    beside_a_broker(scenario)


def test_a_client_whose_acknowledgement_is_lost_is_seen_to_repeat_itself() -> None:
    def scenario(broker: Broker, address: Address) -> None:
        with ChaosProxy(broker.bootstrap) as proxy, watching(address) as events:
            proxy.arm(Fault.DROP_ACK)
            settings = {"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True}
            producer = Producer({**settings, "socket.timeout.ms": 1000, "retry.backoff.ms": 50})
            producer.produce("payments", b"17 EUR")
            assert producer.flush(60) == 0
            told = decisions_of(events)
            original, repetition = next(told), next(told)
            assert [original["outcome"], repetition["outcome"]] == ["accepted", "duplicate"]
            for key in ("producer_id", "epoch", "sequence", "records", "offset"):
                assert original[key] == repetition[key]

    beside_a_broker(scenario)


async def test_nothing_is_put_together_while_nobody_watches() -> None:
    """Counted: calls of anything in the file, in the thread of the event loop."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == decisions.__file__:
            calls.append(frame.f_code.co_name)

    async with Broker() as broker:

        def send() -> None:
            with Asker(broker.bootstrap) as asker:
                asker.create("payments")
                sender_of = sender(asker)
                for sequence in (0, 0, 2, 9):
                    sender_of(sequence)

        with profiled(note):
            await asyncio.to_thread(send)
            assert calls == []
            assert broker.metrics.judged_batches == 4
            subscription = broker.decisions.subscribe()
            assert subscription is not None
            calls.clear()

            def send_one() -> None:
                with Asker(broker.bootstrap) as asker:
                    sender(asker)(0)

            await asyncio.to_thread(send_one)
        assert calls == ["tell"], "so the count above is one of something"


HEADER = read_header(encode_batch(at(1)))
WORDS = {outcome: outcome.name.lower() for outcome in Outcome}

STEPS = st.one_of(st.integers(0, 2), st.sampled_from([*Outcome, "join", "leave"]))


@given(st.lists(STEPS, max_size=60), st.integers(1, 4), st.integers(1, 4))
@example(["join", ACCEPTED, ACCEPTED, 0], 1, 1)
@example(["join", GAP, GAP, ACCEPTED, 0], 1, 1)
@example(["join", ACCEPTED, 0, 0], 1, 1)
@example(["join", "leave"], 1, 1)
def test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out(
    steps: list[int | str], accepted_max: int, others_max: int
) -> None:
    """Against a naive model: a list of all that was told, and for each subscriber how far it has got in it."""
    metrics, told = Metrics(), list[Outcome]()
    watched = Decisions(metrics, accepted_max, others_max)
    reached: list[tuple[Subscription, int]] = []
    for step in steps:
        if isinstance(step, Outcome):
            fall(watched, metrics, step)
            told.append(step)
        elif step == "join":
            subscription = watched.subscribe()
            assert (subscription is None) == (len(reached) == SUBSCRIPTIONS_MAX)
            if subscription is not None:
                reached.append((subscription, len(told)))
        elif step == "leave" and reached:
            watched.unsubscribe(reached.pop(0)[0])
        elif isinstance(step, int) and step < len(reached):
            subscription, place = reached[step]
            counts, left_out, taken, *_ = subscription.take()
            listed = set[int]()
            for outcome in Outcome:
                numbers = [number for number, one in enumerate(told, 1) if one is outcome and number > place]
                newest = numbers[-(accepted_max if outcome is ACCEPTED else others_max) :]
                listed.update(newest)
                assert left_out[WORDS[outcome]] == len(numbers) - len(newest)
                assert counts[WORDS[outcome]] == told.count(outcome)
            assert [decision.number for decision in taken] == sorted(listed)
            reached[step] = (subscription, len(told))
        assert watched.is_watched == bool(reached)


def test_a_flood_of_accepted_batches_is_counted_and_hides_no_duplicate() -> None:
    def scenario(broker: Broker, address: Address) -> None:
        with Asker(broker.bootstrap) as asker, watching(address) as events:
            asker.create("payments")
            sender(asker)(0)
            sender_of = sender(asker)
            sender_of(0)
            sender_of(0)
            batch, count = bytes(encode_batch(at(1))), 40
            data = [{"name": "payments", "partition_data": [{"index": 0, "records": batch}] * count}]
            asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
            listed, left_out = [], 0
            while len(listed) + left_out < count + 3:
                event = next(events)
                left_out += event["left_out"].pop("accepted")
                assert not any(event["left_out"].values())
                listed += event["decisions"]
                assert sum(one["outcome"] == "accepted" for one in event["decisions"]) <= 5
            assert left_out > 0, "several fall in one turn of the event loop"
            numbers = [one["number"] for one in listed]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == count + 3
            assert [one["outcome"] for one in listed if one["outcome"] != "accepted"] == ["duplicate"]

    broker = Broker()
    broker.decisions = Decisions(broker.metrics, accepted_max=5)
    beside_a_broker(scenario, broker)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("outcome", [ACCEPTED, GAP])
async def test_a_quiet_stream_is_woken_by_the_next_decision_and_a_busy_one_finds_what_fell_meanwhile(
    outcome: Outcome,
) -> None:
    metrics = Metrics()
    watched = Decisions(metrics)
    quiet, busy = watched.subscribe(), watched.subscribe()
    assert quiet is not None
    assert busy is not None
    waiting = asyncio.create_task(quiet.wait(60))
    await turns()
    assert not waiting.done()
    fall(watched, metrics, outcome)
    await turns()
    assert waiting.done()
    assert [decision.number for decision in quiet.take().decisions] == [1]
    late = asyncio.create_task(busy.wait(60))
    await turns()
    assert late.done()


async def test_an_accepted_batch_can_wait_where_another_verdict_cannot() -> None:
    metrics = Metrics()
    watched = Decisions(metrics)
    subscription = watched.subscribe()
    assert subscription is not None
    fall(watched, metrics, ACCEPTED)
    waiting = asyncio.create_task(subscription.wait(60, others_only=True))
    await turns()
    fall(watched, metrics, ACCEPTED)
    await turns()
    assert not waiting.done()
    fall(watched, metrics, DUPLICATE)
    await turns()
    assert waiting.done()
    late = asyncio.create_task(subscription.wait(60, others_only=True))
    await turns()
    assert late.done()


def fall(watched: Decisions, metrics: Metrics, outcome: Outcome) -> None:
    """A verdict falls."""
    name = f"{WORDS[outcome]}_batches"
    setattr(metrics, name, getattr(metrics, name) + 1)
    if watched.is_watched:
        watched.tell("payments", 0, HEADER, Verdict(outcome, 17), 0)


@given(
    topic=st.text(max_size=20),
    message=st.one_of(st.none(), st.text(max_size=20)),
    outcome=st.sampled_from(list(Outcome)),
    number=st.integers(0, 1 << 63),
)
@example('a\u2028"\n\r', "\ud800</script>", GAP, 1)
def test_an_event_is_one_line_of_json_whatever_stands_in_it(
    topic: str, message: str | None, outcome: Outcome, number: int
) -> None:
    decision = Decision(number, 7, topic, 0, HEADER, Verdict(outcome, 5, message=message))
    event = event_of(Told({"accepted": 1}, {"accepted": 0}, [decision, decision]))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert len(event.splitlines()) == 2
    told = json.loads(event.removeprefix(b"data: "))
    assert told["decisions"][0] == told["decisions"][1]
    assert (told["decisions"][0]["topic"], told["decisions"][0]["number"]) == (topic, number)
    if outcome in (GAP, FENCED):
        assert told["decisions"][0]["said"] == f"ERROR: {message}"


async def test_a_stream_ends_at_once_when_its_subscriber_went_before_it_waits() -> None:
    """Otherwise the place of a console that connects again is taken until the next keep-alive."""
    subscription = Decisions(Metrics()).subscribe()
    assert subscription is not None
    subscription.end()
    await asyncio.wait_for(subscription.wait(3600), 10)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Host: 127.0.0.1:9464"], "200"),
        (["Host: [::1]:9464"], "200"),
        (["Host: LocalHost"], "200"),
        (["Host: kafka.example.org:9464"], "200"),
        (["Host: evil.example.org:9464"], "421"),
        (["Host: 127.0.0.1.evil.example.org"], "421"),
        (["Host: "], "421"),
        (["Host: [::1"], "421"),
        ([], "421"),
        (["Host: 127.0.0.1", "Origin: http://evil.example.org"], "403"),
        (["Host: 127.0.0.1", "Origin: http://127.0.0.1"], "403"),
        (["Host: 127.0.0.1", "Sec-Fetch-Site: cross-site"], "403"),
        (["Host: 127.0.0.1", "Sec-Fetch-Site: none"], "200"),
    ],
)
def test_no_page_of_a_browser_is_told_a_decision(headers: list[str], status: str) -> None:
    """Neither from another site nor under a name that its owner has resolve to this machine."""
    broker = Broker(listeners=[Listener(advertised_host="Kafka.example.org")])
    beside_a_broker(lambda _, address: check(status_of(address, *headers), status), broker)


@pytest.mark.parametrize(("insecure", "status"), [(False, "403"), (True, "200")])
def test_other_machines_are_told_decisions_only_where_the_network_is_trusted(insecure: bool, status: str) -> None:
    beside_a_broker(
        lambda _, address: check(status_of(address, "Host: 127.0.0.1"), status), host="0.0.0.0", insecure=insecure
    )


def test_as_many_as_may_watch_are_told_and_who_leaves_makes_room() -> None:
    def scenario(broker: Broker, address: Address) -> None:
        held = [watching(address) for _ in range(SUBSCRIPTIONS_MAX)]
        for one in held:
            one.__enter__()
        check(status_of(address, "Host: 127.0.0.1"), "503")
        held.pop().__exit__(None, None, None)
        assert eventually(lambda: status_of(address, "Host: 127.0.0.1") == "HTTP/1.1 200 OK"), "there is no room"
        for one in held:
            one.__exit__(None, None, None)
        assert eventually(lambda: not broker.decisions.is_watched), "somebody is still told"

    beside_a_broker(scenario)


def check(answer: str, status: str) -> None:
    assert answer.startswith(f"HTTP/1.1 {status} ")
