"""What one bucket keeps about its keys: an array of packed records, sorted by key, that is searched and merged as a
whole. This file does not know what the records mean, and makes no Python object for any of them.

A key is a hash of 128 bits of what the user named (a scope and a producer, an event id, an aggregate). The record of a
producer contains the `bytes` that `wire.sequences` makes.
"""

from typing import Final, NamedTuple

import numpy
import numpy.typing

HIGH: Final = "high"
LOW: Final = "low"

Array = numpy.typing.NDArray[numpy.void]
Integers = numpy.typing.NDArray[numpy.int64]
Flags = numpy.typing.NDArray[numpy.bool_]
Indices = numpy.typing.NDArray[numpy.intp]


def keyed(**fields: str) -> numpy.dtype[numpy.void]:
    """The layout of a table whose records have these fields besides their key: packed, in the order given."""
    return numpy.dtype([(HIGH, "<i8"), (LOW, "<i8"), *fields.items()])


def empty(layout: numpy.dtype[numpy.void]) -> Array:
    return numpy.zeros(0, layout)


def find(table: Array, high: Integers, low: Integers) -> tuple[Flags, Indices]:
    """Whether the table has each key, and where; the place of a missing key means nothing."""
    if not len(table):
        return numpy.zeros(len(high), bool), numpy.zeros(len(high), numpy.intp)
    known_high, known_low = numpy.ascontiguousarray(table[HIGH]), table[LOW]
    places = numpy.searchsorted(known_high, high)
    while True:
        # Two keys may share their first half: step over those whose second half is smaller.
        inside = places < len(table)
        at = numpy.where(inside, places, 0)
        alike = inside & (known_high[at] == high)
        smaller = alike & (known_low[at] < low)
        if not smaller.any():
            return alike & (known_low[at] == low), at
        places = places + smaller


def merge(table: Array, added: Array) -> Array:
    """Both tables in one, sorted. No key may be in both."""
    if not len(added):
        return table
    # Without the layout, numpy would bring the numbers into the order of bytes of this machine.
    together = numpy.concatenate([table, added], dtype=table.dtype)
    return together[numpy.lexsort((together[LOW], together[HIGH]))]


class Groups(NamedTuple):
    """Rows grouped by their key, with the keys numbered in order."""

    order: Indices
    """The rows, grouped by key, within a key in the order in which they came."""
    number_of: Indices
    """The number of the key of each row."""
    first: Indices
    """The first row of each key."""


def group(high: Integers, low: Integers) -> Groups:
    order = numpy.argsort(high, kind="stable")
    high_in_order, low_in_order = high[order], low[order]
    differs = low_in_order[1:] != low_in_order[:-1]
    if numpy.any(differs & (high_in_order[1:] == high_in_order[:-1])):
        # Two keys share their first half.
        order = numpy.lexsort((low, high))
        high_in_order, low_in_order = high[order], low[order]
        differs = low_in_order[1:] != low_in_order[:-1]
    begins = numpy.ones(len(order), bool)
    begins[1:] = differs | (high_in_order[1:] != high_in_order[:-1])
    number_of = numpy.empty(len(order), numpy.intp)
    number_of[order] = numpy.cumsum(begins) - 1
    return Groups(order, number_of, order[begins])
