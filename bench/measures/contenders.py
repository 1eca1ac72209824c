"""The contenders of the measures in which durability decides: each broker, at each durability that it has."""

from __future__ import annotations

from typing import Final

from bench.measures.measure import Contenders
from bench.peers.kafka import Kafka
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu

OF_EACH_DURABILITY: Final[Contenders] = {
    "semel os": lambda: Semel(durability="os"),
    "semel fsync": lambda: Semel(durability="fsync"),
    "kafka": Kafka,
    "kafka flush": lambda: Kafka(flush_messages=1),
    "tansu": Tansu,
}
# The columns of a row with what the client takes against librdkafka's mock broker, which keeps nothing. No broker's
# figure can be below it, so it stands in each of them.
THE_CLIENT_ALONE: Final = {"semel": "mock", "kafka": "mock", "tansu": "mock"}
