"""The publisher, killed: every number is in the log once and in order, with all its records, whoever else was there."""

from __future__ import annotations

from committed_records import committed_values, make_topic
from crash_kit.survey import Place
from semel.publish import Fenced, Publisher, Record

NAME = "publish"
# Two lives in one: the second start finds what the first one left.
_LIVES = ((0, 1), (2, 3))
_RECORDS = 2
_CLIENT = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20, "linger.ms": 0}


def prepare(place: Place) -> None:
    make_topic(place.bootstrap, f"{place.label}-records")


def work(place: Place) -> None:
    try:
        for numbers in _LIVES:
            with Publisher(place.bootstrap, place.label, client=_CLIENT, timeout_seconds=30) as publisher:
                for number in numbers:
                    # As a relay would that does not know what its last life came to.
                    publisher.publish(number, *_records(place, number))
                if publisher.last() < numbers[-1]:
                    raise AssertionError(f"published {numbers[-1]}, and last is {publisher.last()}")
    except Fenced:
        # A rival has the name: this one is to stop, and whoever began it begins it anew when the rival is gone.
        return


def audit(place: Place) -> None:
    expected = [record.value for numbers in _LIVES for number in numbers for record in _records(place, number)]
    found = committed_values(place.bootstrap, f"{place.label}-records")
    assert found == expected, f"the log has {found}"
    with Publisher(place.bootstrap, place.label, client=_CLIENT) as publisher:
        assert publisher.last() == _LIVES[-1][-1]


def _records(place: Place, number: int) -> list[Record]:
    return [Record(f"{place.label}-records", value=b"%d.%d" % (number, which)) for which in range(_RECORDS)]
