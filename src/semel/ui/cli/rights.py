"""The rights that each piece of semel needs on a cluster with access rules, semel's or Apache Kafka's, as data."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple


class Right(NamedTuple):
    """Operations on a resource. Its name has the piece's own names in it: {topic}, {name}, {group}."""

    operations: tuple[str, ...]
    resource: str
    is_prefixed: bool = False
    # Needed only where its group is named.
    is_optional: bool = False


class Piece(NamedTuple):
    """What a program with this piece needs on a cluster."""

    rights: tuple[Right, ...]
    # What `{name}` is, if the piece has a name of its own.
    name: str = ""


_TOPICS_OF_RECORDS: Final = Right(("write",), "topic:{topic}")
# The policy of such a topic is checked at each start: another one would lose the numbers of what was written.
_OWN_TOPIC: Final = ("read", "write", "create", "describe-configs")

PIECES: Final[Mapping[str, Piece]] = {
    "publisher": Piece(
        (
            _TOPICS_OF_RECORDS,
            Right(_OWN_TOPIC, "topic:semel-publish-{name}"),
            Right(("write",), "transactional-id:semel-publish-{name}"),
            # The reader of the cursor joins no group, but its client asks for the coordinator of one. All works without
            # this right; the broker then logs a refusal at each start.
            Right(("describe",), "group:semel-publish-{name}"),
        ),
        "the publisher's name",
    ),
    "outbox": Piece(
        (
            _TOPICS_OF_RECORDS,
            # Its publishers have names that begin so: one for each shard.
            Right(_OWN_TOPIC, "topic:semel-publish-{name}-", True),
            Right(("write",), "transactional-id:semel-publish-{name}-", True),
            Right(("describe",), "group:semel-publish-{name}-", True),
        ),
        "the outbox's name; the first relay calls it outbox",
    ),
    "inbox": Piece((Right(("read",), "topic:{topic}"), Right(("read",), "group:{group}"))),
    # With kafka.group.id it commits how far the query is.
    "source": Piece((Right(("read",), "topic:{topic}"), Right(("read",), "group:{group}", is_optional=True))),
    "sink": Piece(
        (
            _TOPICS_OF_RECORDS,
            # Batch writes may add lanes.
            Right((*_OWN_TOPIC, "alter"), "topic:semel-progress-{name}"),
            Right(("write",), "transactional-id:semel-lane-{name}-", True),
        ),
        "the sinkId",
    ),
    "audit": Piece((Right(("read",), "topic:{topic}"),)),
    "console": Piece(
        (
            Right(("read", "describe-configs"), "topic:*"),
            Right(("describe",), "group:*"),
            Right(("describe",), "transactional-id:*"),
            Right(("describe", "describe-configs"), "cluster"),
        ),
    ),
    # Besides those of a console, with --allow-changes.
    "console-changes": Piece(
        (
            Right(("read", "create", "alter", "alter-configs", "delete"), "topic:*"),
            Right(("read", "delete"), "group:*"),
            Right(("write",), "transactional-id:*"),
            Right(("alter",), "cluster"),
        ),
    ),
}


def rights_of(piece: Piece, topics: Iterable[str], names: Mapping[str, str]) -> Iterator[Right]:
    """The rights of the piece with these names; KeyError with the name that is missing."""
    for right in piece.rights:
        if right.is_optional and "group" not in names:
            continue
        each = [{"topic": topic} for topic in topics] if "{topic}" in right.resource else [{}]
        if not each:
            raise KeyError("topic")
        for topic in each:
            yield right._replace(resource=right.resource.format_map({**names, **topic}))
