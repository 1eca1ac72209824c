"""The measure of a broker that comes to a full store with an empty disk. It must never count a start after which
something acknowledged is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, ClassVar, Final

from bench import clients
from bench.measures.contenders import STORES_NOTE
from bench.measures.measure import GIGABYTE, MEGABYTE, MISSING, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.semel_on_store import SemelOnStore
from bench.peers.stores import Seaweed

TOPIC: Final = "kept"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 1000
READY_MOST: Final = 3.0


class NewMachine(Measure):
    """10 GB of 1 KB messages in the store (`--store-bytes` says how much), then SIGTERM to the broker, and a new one
    with an empty disk on the same store: the time from the start of its process until it serves. It reads the newest
    checkpoint, which names the records and has none of them, and the journal since then. A clean stop writes no
    checkpoint, so that journal is as long as it happens to be; the row below has the whole journal in the store, and
    so an upper bound. Records come when somebody asks: the last row is how long a consumer waits for the very first
    one, which only the store has. Afterwards everything that was acknowledged must be there.

    After `kill -9` a newcomer waits for the end of the lease as well, which `takeover` measures."""

    name = "new-machine"
    contenders: ClassVar[Contenders] = {"semel": lambda: SemelOnStore(Seaweed)}
    rows = (
        Row(
            "ready with an empty disk on a full SeaweedFS, s",
            "ready_seconds",
            Target(Kind.VALUE_AT_MOST, READY_MOST),
            kafka=None,
            tansu=None,
            decimals=2,
        ),
        Row("records in the store then, GB", "records", kafka=None, tansu=None, decimals=2),
        Row("journal in the store then, MB", "journal", kafka=None, tansu=None),
        Row("first record read there, s", "first_seconds", kafka=None, tansu=None, decimals=2),
    )
    notes = (STORES_NOTE,)

    def run(self, broker: SemelOnStore, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, TOPIC, PARTITIONS)
        acknowledged, portion = 0, scale.flood_bytes // VALUE_BYTES
        while acknowledged * VALUE_BYTES < scale.store_bytes:
            arguments = (TOPIC, PARTITIONS, VALUE_BYTES, portion, True)
            acknowledged += clients.run(broker, clients.flood, [arguments]).results[0]
        contents = _contents(broker.url)
        newcomer = broker.replace()
        read = clients.run(broker, clients.read_all, [(TOPIC, PARTITIONS, 1)])
        return {
            "ready_seconds": newcomer.ready_seconds,
            "records": contents["segments"]["bytes"] / GIGABYTE,
            "journal": contents["journal"]["bytes"] / MEGABYTE,
            "first_seconds": read.elapsed_seconds,
            MISSING: acknowledged - clients.count_stored(broker, TOPIC, PARTITIONS),
        }


def _contents(url: str) -> Any:
    command = [sys.executable, "-m", "semel", "status", url, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["contents"]
