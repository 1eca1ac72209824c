"""A schema with all that becomes a column, and values of it."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

import fastavro
import numpy as np

LINE: Final = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
PERSON: Final = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "name", "type": "string"}, {"name": "lines", "type": {"type": "array", "items": LINE}}],
}
EVERYTHING: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "large", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "flag", "type": "boolean"},
        {"name": "nothing", "type": "null"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "after", "type": ["long", "null"], "default": 7},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {
            "name": "exact",
            "type": {
                "type": "fixed",
                "name": "Exact",
                "size": 17,
                "logicalType": "decimal",
                "precision": 38,
                "scale": 0,
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "finer", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "second_kind", "type": ["null", "Kind"]},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "who", "type": ["null", PERSON]},
    ],
}
_PARSED: Final = fastavro.parse_schema(EVERYTHING)
_YEAR_2026: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def some_values(seed: int, count: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [_some(chance) for _ in range(count)]


def _some(chance: random.Random) -> dict[str, Any]:
    bits = chance.choice((3, 31, 63))
    at = _YEAR_2026 + datetime.timedelta(milliseconds=chance.randrange(-(10**12), 10**12))
    lines = [{"sku": "s" * number, "count": number} for number in range(chance.randrange(3))]
    finer = at + datetime.timedelta(microseconds=chance.randrange(1000))
    return {
        "id": f"o-{chance.randrange(10**9)}",
        "large": chance.randrange(-(2**bits), 2**bits),
        "small": chance.choice((0, -1, 2**31 - 1, -(2**31), chance.randrange(10**6))),
        "single": float(np.float32(chance.random())),
        "double": chance.choice((chance.random(), float("inf"), -0.0)),
        "flag": chance.random() < 0.5,
        "nothing": None,
        "note": chance.choice((None, "", "ä" * chance.randrange(5))),
        "after": chance.choice((None, chance.randrange(10**9))),
        "cents": Decimal(chance.randrange(-(10 ** chance.randrange(1, 20)), 10**20)).scaleb(-2),
        "exact": Decimal(chance.randrange(-(10 ** chance.randrange(1, 38)), 10**38)),
        "at": at,
        "finer": finer,
        "local": finer.replace(tzinfo=None),
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=chance.randrange(-(10**5), 10**5)),
        "kind": chance.choice("ABC"),
        "second_kind": chance.choice((None, "B")),
        "raw": chance.randbytes(chance.randrange(4)),
        "four": chance.randbytes(4),
        "tags": [f"t{number}" for number in range(chance.randrange(4))],
        "counts": {f"k{number}": chance.choice((None, number)) for number in range(chance.randrange(3))},
        "who": chance.choice((None, {"name": "anna", "lines": lines})),
    }


def written(value: dict[str, Any]) -> bytes:
    """As fastavro writes it."""
    octets = BytesIO()
    fastavro.schemaless_writer(octets, _PARSED, value)
    return octets.getvalue()


def read(octets: bytes) -> dict[str, Any] | None:
    """As fastavro reads it; nothing if it does not, or if bytes are left."""
    rest = BytesIO(octets)
    try:
        found = fastavro.schemaless_reader(rest, _PARSED, None)
    except Exception:
        return None
    assert isinstance(found, dict)
    return found if rest.tell() == len(octets) else None
