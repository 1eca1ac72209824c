"""The measure of what the store costs those who have none: a log in a directory now, and before there were stores. It
must never compare figures of two runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Final

from bench import clients
from bench.measures.idempotence import in_a_topic
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.semel_before import SemelBefore
from bench.sides import take_turns

# The last commit in which the journal was a file, and nothing else.
BEFORE: Final = "9c68054e16"
PARTITIONS: Final = 4
KILOBYTE: Final = 1000
SMALL_BYTES: Final = 100
MORE_MOST: Final = 1.03


class LocalJournal(Measure):
    """What the broker's CPU time for the same messages is now, with the log in a directory and no store, divided by
    what it was at the last commit before the journal could lie in a store. Both brokers run at the same time, on the
    same Python and libraries, and take turns: a flood of 1 KB messages, and one message of 100 B at a time. The figure
    is the median over the turns. What else has come since then is in it, too: TLS, logins, access rules and quotas are
    turned off here, but are asked for. Durability is `os`, so that what the kernel does for a sync is not in it."""

    name = "local-journal"
    contenders: ClassVar[Contenders] = {"semel": lambda: Semel(durability="os")}
    rows = (
        Row(
            "flood of 1 KB without a store, broker CPU, times that before there were stores",
            "flood",
            Target(Kind.VALUE_AT_MOST, MORE_MOST),
            kafka=None,
            tansu=None,
            decimals=3,
        ),
        Row(
            "one message at a time without a store, broker CPU, times that before there were stores",
            "singles",
            Target(Kind.VALUE_AT_MOST, MORE_MOST),
            kafka=None,
            tansu=None,
            decimals=3,
        ),
    )
    notes = (f"local-journal compares with commit {BEFORE}.",)

    def run(self, broker: Broker, scale: Scale) -> Figures:
        before = SemelBefore(BEFORE, durability="os")
        try:
            before.start()
            broker.start()
            spent: dict[tuple[str, int], list[float]] = defaultdict(list)
            # The first turn warms up.
            for turn, side in take_turns((before, broker), 1 + scale.idempotence_pairs):
                for what, cpu_seconds in (("flood", _flood(side, scale)), ("singles", _singles(side, scale))):
                    if turn:
                        spent[what, side.port].append(cpu_seconds)
            return {what: _ratio(spent[what, broker.port], spent[what, before.port]) for what in ("flood", "singles")}
        finally:
            before.stop()


def _flood(broker: Broker, scale: Scale) -> float:
    sent = KILOBYTE, scale.idempotence_bytes // KILOBYTE, True
    return in_a_topic(broker, PARTITIONS, clients.flood, PARTITIONS, *sent).broker_cpu_seconds


def _singles(broker: Broker, scale: Scale) -> float:
    sent = SMALL_BYTES, scale.single_warm // 10, scale.single_messages
    return in_a_topic(broker, 1, clients.one_at_a_time, [0], *sent).broker_cpu_seconds


def _ratio(now: Sequence[float], before: Sequence[float]) -> float:
    """Turn by turn, because the machine is faster at some times than at others."""
    return median(one / other for one, other in zip(now, before, strict=True))
