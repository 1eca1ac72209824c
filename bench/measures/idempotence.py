"""The measure of what idempotence costs the broker. Both sides run on one broker, in turn; it must never compare two
brokers."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import ClassVar, Final, TypedDict, TypeVar

from bench import bare_clients, clients
from bench.measures.measure import GIGABYTE, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel

PARTITIONS = 4
VALUE_BYTES = 1000
MESSAGES_PER_BATCH = 100
BATCH_BYTES = VALUE_BYTES * MESSAGES_PER_BATCH
# As many as an idempotent producer may have under way.
REQUESTS_AT_ONCE = 5
# The requests of librdkafka's two sides may differ by so much, because it begins and ends with smaller ones.
DIFFERENCE_MAX = 0.01
R = TypeVar("R")
_WORDS: Final = {True: "on", False: "off"}


class Alone(TypedDict):
    kafka: None
    tansu: None


ALONE: Final[Alone] = {"kafka": None, "tansu": None}


class Idempotence(Measure):
    """What the broker's CPU for the same 1 KB messages differs by with idempotence on and off, in turn on one broker.
    Exactly once must cost nothing, or people turn it off. First a bare client sends the very same requests, with a
    producer id and without: batches of 100 messages, one in each request, five under way, and then one message at a
    time. What differs is what the rules cost, and that has the target. Then the same with librdkafka, whose batches
    are made equal in size and number; a run in which the numbers differ counts as failed. It sends at other times with
    idempotence than without, so its share is not the rules' alone. Each side goes first in turn. Only semel runs: the
    target is its own."""

    name = "idempotence"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = (
        Row(
            "the same requests with a producer id against without, broker CPU, %",
            "overhead_percent",
            Target(Kind.VALUE_AT_MOST, 2.0),
            reason="the broker checks and keeps the numbers of each batch; the rounds differ by more than that costs.",
            kafka=None,
            tansu=None,
            decimals=1,
        ),
        Row("the same requests with a producer id, messages/s", "bare_messages_per_second_on", **ALONE),
        Row("the same requests without, messages/s", "bare_messages_per_second_off", **ALONE),
        Row("the same, one message at a time, with a producer id, p50 us", "bare_p50_us_on", **ALONE),
        Row("the same, one message at a time, without, p50 us", "bare_p50_us_off", **ALONE),
        Row("librdkafka, idempotence on against off, broker CPU, %", "library_overhead_percent", decimals=1, **ALONE),
        Row("librdkafka, idempotence on, messages/s", "messages_per_second_on", **ALONE),
        Row("librdkafka, idempotence off, messages/s", "messages_per_second_off", **ALONE),
        Row("batches that librdkafka sent with idempotence on", "batches_on", **ALONE),
        Row("batches that librdkafka sent with idempotence off", "batches_off", **ALONE),
        Row("librdkafka, one message at a time, idempotence on, p50 us", "p50_us_on", **ALONE),
        Row("librdkafka, one message at a time, idempotence off, p50 us", "p50_us_off", **ALONE),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        self._flood(broker, scale.warm_bytes, idempotent=True)
        spent: dict[str, float] = defaultdict(float)
        elapsed: dict[str, float] = defaultdict(float)
        took_us: dict[str, list[float]] = defaultdict(list)
        batches: dict[bool, int] = defaultdict(int)
        for pair in range(scale.idempotence_pairs):
            # On-off, then off-on: a broker that gets slower as it fills must not pass for the cost of one side.
            sides = (True, False) if pair % 2 == 0 else (False, True)
            for idempotent in sides:
                side = _WORDS[idempotent]
                bare = self._bare(broker, scale.idempotence_bytes // BATCH_BYTES, idempotent)
                spent[f"bare_{side}"] += bare.broker_cpu_seconds
                elapsed[f"bare_{side}"] += bare.elapsed_seconds
                took_us[f"bare_{side}"] += self._bare_singles(broker, scale, idempotent)
            for idempotent in sides:
                side = _WORDS[idempotent]
                load = self._flood(broker, scale.idempotence_bytes, idempotent=idempotent)
                spent[side] += load.broker_cpu_seconds
                elapsed[side] += load.elapsed_seconds
                batches[idempotent] += load.results[0]
                took_us[side] += self._one_at_a_time(broker, scale, idempotent)
        if abs(batches[True] / batches[False] - 1) > DIFFERENCE_MAX:
            raise clients.LoadFailed(f"{batches[True]} requests with idempotence, {batches[False]} without")
        messages = scale.idempotence_pairs * (scale.idempotence_bytes // BATCH_BYTES) * MESSAGES_PER_BATCH
        sent_gigabytes = scale.idempotence_pairs * scale.idempotence_bytes / GIGABYTE
        return {
            "overhead_percent": 100 * (spent["bare_on"] / spent["bare_off"] - 1),
            "library_overhead_percent": 100 * (spent["on"] / spent["off"] - 1),
            "cpu_seconds_per_gigabyte_on": spent["on"] / sent_gigabytes,
            **{_metric("messages_per_second", side): messages / seconds for side, seconds in elapsed.items()},
            **{_metric("p50_us", side): median(all_us) for side, all_us in took_us.items()},
            **{f"batches_{_WORDS[side]}": count for side, count in batches.items()},
        }

    def _bare(self, broker: Broker, requests: int, idempotent: bool) -> clients.Load[array[float]]:
        sent = VALUE_BYTES, MESSAGES_PER_BATCH, requests // 10, requests, REQUESTS_AT_ONCE, idempotent
        return in_a_topic(broker, PARTITIONS, bare_clients.send, PARTITIONS, *sent)

    def _bare_singles(self, broker: Broker, scale: Scale, idempotent: bool) -> list[float]:
        sent = VALUE_BYTES, 1, scale.single_warm, scale.single_messages // scale.idempotence_pairs, 1, idempotent
        return list(in_a_topic(broker, 1, bare_clients.send, 1, *sent).results[0])

    def _one_at_a_time(self, broker: Broker, scale: Scale, idempotent: bool) -> list[float]:
        send = partial(clients.one_at_a_time, idempotent=idempotent)
        sent = VALUE_BYTES, scale.single_warm, scale.single_messages // scale.idempotence_pairs
        return list(in_a_topic(broker, 1, send, [0], *sent).results[0])

    def _flood(self, broker: Broker, flood_bytes: int, *, idempotent: bool) -> clients.Load[int]:
        sent = VALUE_BYTES, flood_bytes // VALUE_BYTES, MESSAGES_PER_BATCH, idempotent
        return in_a_topic(broker, PARTITIONS, clients.flood_in_batches, PARTITIONS, *sent)


def in_a_topic(broker: Broker, partitions: int, load: Callable[..., R], *arguments: object) -> clients.Load[R]:
    """Run one client in a topic of its own, which goes afterwards."""
    clients.create_topic(broker, "load", partitions)
    done = clients.run(broker, load, [("load", *arguments)])
    clients.delete_topic(broker, "load")
    return done


def _metric(what: str, side: str) -> str:
    """`bare_on` names the metric `bare_messages_per_second_on`, for instance."""
    client, _, switch = side.rpartition("_")
    return "_".join(filter(None, (client, what, switch)))
