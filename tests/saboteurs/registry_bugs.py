"""The planted bugs of the schema registry: a value arrives as it was written, or is named."""

from typing import Final

from saboteurs.planting import Bug

_CODEC = ("tests/spark/registry/test_avro_codec.py",)
_CLIENT = ("tests/spark/registry/test_registry_client.py",)

REGISTRY_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a field that the reader's schema lacks is dropped without a word",
        "semel.spark.registry.decoder:_record_decoder",
        "place < 0 and inner not in without",
        "False",
        _CODEC,
    ),
    Bug(
        "a long is read as a double, which does not hold each of them",
        "semel.spark.registry.avro:fits",
        "pa.float64(): (*small, pa.float32())",
        "pa.float64(): (*small, pa.int64(), pa.float32())",
        _CODEC,
    ),
    Bug(
        "a text goes on in the bytes of the next row",
        "semel.spark.registry.decoder:Rows.take",
        "(lengths < 0) | (lengths > left)",
        "lengths < 0",
        _CODEC,
    ),
    Bug(
        "a number goes on in the bytes of the next row",
        "semel.spark.registry.decoder:Rows.integers",
        "after > self.ends[rows]",
        "after < 0",
        _CODEC,
    ),
    Bug(
        "text that is not UTF-8 arrives changed",
        "semel.spark.registry.decoder:_text",
        "text.encode() != one",
        "False",
        _CODEC,
    ),
    Bug(
        "microseconds are cut off where the schema keeps milliseconds",
        "semel.spark.registry.encoder:_integer",
        "rest.any()",
        "False",
        _CODEC,
    ),
    Bug(
        "null is written where the schema has none",
        "semel.spark.registry.encoder:encoded",
        'column.null_count and node.kind != "null"',
        "False",
        _CODEC,
    ),
    Bug(
        "a login follows a redirect to another machine",
        "semel.spark.registry.client:Registry._opener",
        "_NoRedirects",
        "urllib.request.HTTPRedirectHandler",
        _CLIENT,
    ),
    Bug(
        "a registry that is busy is asked no second time",
        "semel.spark.registry.client:Registry._asked",
        "error.code not in _PASSING",
        "True",
        _CLIENT,
    ),
)
