"""The measure of what idempotence costs the broker. Both sides run on one broker, in turn; it must never compare two
brokers."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import ClassVar, Final, TypedDict

from bench import clients
from bench.measures.measure import GIGABYTE, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel

PARTITIONS = 4
VALUE_BYTES = 1000
MESSAGES_PER_BATCH = 100
# The requests of the two sides may differ by so much, because the client begins and ends with smaller ones.
DIFFERENCE_MAX = 0.01
_WORDS: Final = {True: "on", False: "off"}


class Alone(TypedDict):
    kafka: None
    tansu: None


ALONE: Final[Alone] = {"kafka": None, "tansu": None}


class Idempotence(Measure):
    """The same flood of 1 KB messages with idempotence on and off, in turn on one broker, and what the broker's CPU per
    GB differs by. Exactly once must cost nothing, or people turn it off. What a broker does is done for each batch, and
    left to itself librdkafka makes batches of other sizes with idempotence than without. So both sides send batches of
    100 messages, one in each request; the numbers of batches stand beside, and a run in which they differ counts as
    failed. Each side goes first in turn, also where one message is sent at a time. Only semel runs: the target is its
    own."""

    name = "idempotence"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = (
        Row(
            "idempotence on against off, 1 KB, broker CPU, %",
            "overhead_percent",
            Target(Kind.VALUE_AT_MOST, 2.0),
            kafka=None,
            tansu=None,
            decimals=1,
        ),
        Row("the same flood, idempotence on, messages/s", "messages_per_second_on", **ALONE),
        Row("the same flood, idempotence off, messages/s", "messages_per_second_off", **ALONE),
        Row("batches sent with idempotence on", "batches_on", **ALONE),
        Row("batches sent with idempotence off", "batches_off", **ALONE),
        Row("one message at a time, idempotence on, p50 us", "p50_us_on", **ALONE),
        Row("one message at a time, idempotence off, p50 us", "p50_us_off", **ALONE),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        self._flood(broker, "warm", scale.warm_bytes, idempotent=True)
        spent = {True: 0.0, False: 0.0}
        elapsed = {True: 0.0, False: 0.0}
        took_us: dict[bool, list[float]] = {True: [], False: []}
        requests = {True: 0, False: 0}
        for pair in range(scale.idempotence_pairs):
            # On-off, then off-on: a broker that gets slower as it fills must not pass for the cost of one side.
            for idempotent in (True, False) if pair % 2 == 0 else (False, True):
                topic = f"pair-{pair}-{'on' if idempotent else 'off'}"
                load = self._flood(broker, topic, scale.idempotence_bytes, idempotent=idempotent)
                spent[idempotent] += load.broker_cpu_seconds
                elapsed[idempotent] += load.elapsed_seconds
                requests[idempotent] += load.results[0]
                took_us[idempotent] += self._one_at_a_time(broker, scale, pair, idempotent)
        if abs(requests[True] / requests[False] - 1) > DIFFERENCE_MAX:
            raise clients.LoadFailed(f"{requests[True]} requests with idempotence, {requests[False]} without")
        messages = scale.idempotence_pairs * (scale.idempotence_bytes // VALUE_BYTES)
        sent_gigabytes = scale.idempotence_pairs * scale.idempotence_bytes / GIGABYTE
        return {
            "overhead_percent": 100 * (spent[True] / spent[False] - 1),
            "cpu_seconds_per_gigabyte_on": spent[True] / sent_gigabytes,
            **{f"messages_per_second_{_WORDS[side]}": messages / seconds for side, seconds in elapsed.items()},
            **{f"batches_{_WORDS[side]}": count for side, count in requests.items()},
            **{f"p50_us_{_WORDS[side]}": median(all_us) for side, all_us in took_us.items()},
        }

    def _one_at_a_time(self, broker: Broker, scale: Scale, pair: int, idempotent: bool) -> list[float]:
        topic = f"single-{pair}-{_WORDS[idempotent]}"
        clients.create_topic(broker, topic, 1)
        arguments = (topic, [0], VALUE_BYTES, scale.single_warm, scale.single_messages // scale.idempotence_pairs)
        send = partial(clients.one_at_a_time, idempotent=idempotent)
        found = list(clients.run(broker, send, [arguments]).results[0])
        clients.delete_topic(broker, topic)
        return found

    def _flood(self, broker: Broker, topic: str, flood_bytes: int, *, idempotent: bool) -> clients.Load[int]:
        clients.create_topic(broker, topic, PARTITIONS)
        count = flood_bytes // VALUE_BYTES
        arguments = (topic, PARTITIONS, VALUE_BYTES, count, MESSAGES_PER_BATCH, idempotent)
        load = clients.run(broker, clients.flood_in_batches, [arguments])
        clients.delete_topic(broker, topic)
        return load
