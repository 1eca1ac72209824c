"""The measure of compaction. It must never count a pass after which a key is missing."""

from __future__ import annotations

import re
import time
from typing import ClassVar

from bench import clients
from bench.measures.measure import MEGABYTE, MISSING, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel

TOPIC = "compacted"
VALUE_BYTES = 1000
ROUNDS = 10
SEGMENT_BYTES = 64 * 1024 * 1024

# Both look every 15 s whether there is something to compact; a broker that has not begun after this long will not.
WAIT_SECONDS_MAX = 300.0

# How each says how long a pass over the topic took.
PASS_TOOK = {
    "semel": re.compile(rb"event=compacted partition=\S*compacted\S* .*?\bseconds=([0-9.]+)"),
    "kafka": re.compile(rb"cleaned log compacted-0 .*?processed in ([0-9.,]+) seconds", re.DOTALL),
}


class Compaction(Measure):
    """1 GB of messages of 1 KB in one partition, whose keys come round ten times, in segments of 64 MiB, not
    compressed. Then the topic is made a compacted one. How long the pass over it takes is what the broker says in its
    log, because from outside nobody sees when it begins. Afterwards a consumer must find every key."""

    name = "compaction"
    contenders: ClassVar[Contenders] = {"semel": lambda: Semel(log_level="info"), "kafka": Kafka}
    rows = (
        Row(
            "compaction of 1 GB, 1 KB messages, every key ten times, MB/s",
            "megabytes_per_second",
            Target(Kind.RATIO_AT_LEAST, 1.0),
            tansu=None,
            reason="a pass opens each batch in Python for its keys, and those with a last record of a key again.",
        ),
    )
    notes = ("Tansu in memory does not compact.",)

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        count = scale.compaction_bytes // VALUE_BYTES
        keys = count // ROUNDS
        clients.create_topic(broker, TOPIC, 1, {"segment.bytes": str(SEGMENT_BYTES)})
        clients.run(broker, clients.flood_keys, [(TOPIC, VALUE_BYTES, keys, count)])
        clients.change_config(broker, TOPIC, "cleanup.policy", "compact")
        seconds = _pass_seconds(broker)
        ((messages, found),) = clients.run(broker, clients.read_keys, [(TOPIC,)]).results
        if messages >= count:
            raise clients.LoadFailed(f"all {messages} messages are still there")
        return {"megabytes_per_second": count * VALUE_BYTES / MEGABYTE / seconds, MISSING: keys - found}


def _pass_seconds(broker: Broker) -> float:
    """How long the first pass took, once it is over."""
    deadline = time.perf_counter() + WAIT_SECONDS_MAX
    while time.perf_counter() < deadline:
        said = PASS_TOOK[broker.name].search(broker.log_since_spawn())
        if said is not None:
            return float(said.group(1).replace(b",", b""))
        broker.check_alive()
        time.sleep(0.2)
    raise clients.LoadFailed(f"no pass in {WAIT_SECONDS_MAX:.0f} s:\n{broker.log_tail()}")
