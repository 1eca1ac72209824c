"""The claim of a sink in an Iceberg table: in the summary of the snapshot that has its rows, and in a table property.

Each place lacks something: `expire_snapshots` takes the summary away, and a rollback leaves the property although the
rows are gone. So the summaries of the snapshots that the branch consists of count first, from the newest on. Only where
those that are left have no claim, the property counts, and only if its snapshot can still be below them. Pure: this
module looks at metadata that others have read, and never at a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.spark.claims import BatchRefused
from semel.spark.tables.claims import TableClaim

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

MAIN = "main"
PREFIX = "semel.sink."
# The sequence number of the first snapshot of a table.
FIRST_SEQUENCE = 1


@dataclass(frozen=True)
class Noted:
    """A claim, as it is written down."""

    claim: TableClaim
    attempt: int
    snapshot: int | None = None
    """The snapshot that has the rows, in the property only: a summary is of its own snapshot."""
    sequence: int = 0
    """The sequence number of that snapshot. These numbers grow with each commit, also after a rollback."""


def key_of(sink: str, branch: str) -> str:
    """The name of the claim, in both places. One sink may write into two branches, and they share the properties."""
    return f"{PREFIX}{sink}" if branch == MAIN else f"{PREFIX}{sink}@{branch}"


def text_of(noted: Noted) -> str:
    claim = noted.claim
    found: dict[str, Any] = {"query": claim.query_id, "batch": claim.batch_id, "digest": claim.digest}
    found["attempt"] = noted.attempt
    if noted.snapshot is not None:
        # A reader of JSON may take numbers for floating-point ones, and ids of snapshots have 63 bits.
        found |= {"snapshot": str(noted.snapshot), "sequence": noted.sequence}
    return json.dumps(found)


def noted_in(text: str | None, where: str) -> Noted | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
        claim = TableClaim(str(found["query"]), int(found["batch"]), str(found["digest"]))
        snapshot = found.get("snapshot")
        return Noted(claim, int(found["attempt"]), snapshot and int(snapshot), int(found.get("sequence", 0)))
    except (ValueError, KeyError, TypeError):
        raise BatchRefused(f"{where} has a claim that is none of a sink: {text!r}. Nothing was written") from None


def standing(metadata: TableMetadata, sink: str, branch: str, where: str) -> Noted | None:
    """The last claim whose rows the branch has; raises if nobody can tell."""
    key = key_of(sink, branch)
    oldest = None
    for snapshot in line_of(metadata, branch):
        oldest = snapshot
        summary = snapshot.summary
        if summary is not None and (noted := noted_in(summary.additional_properties.get(key), where)) is not None:
            return noted
    noted = noted_in(metadata.properties.get(key), where)
    if noted is None or oldest is None or oldest.sequence_number == FIRST_SEQUENCE:
        # The whole line was read, and no snapshot in it is the sink's: a rollback took away what the property names.
        # That the oldest one names no parent is no proof: pyiceberg removes the name when the parent expires.
        return None
    if metadata.snapshot_by_id(noted.snapshot or 0) is None and (oldest.sequence_number or 0) > noted.sequence:
        return noted
    raise BatchRefused(
        f"{where} was taken back to a snapshot before batch {noted.claim.batch_id} of sink {sink!r}, and nobody can "
        "tell which batches it has: the snapshots that say so have expired. Nothing was written. Look which rows are "
        "missing, write them, and go on under a new sink_id"
    )


def line_of(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """The snapshots that a branch consists of, from the newest on, as far as they have not expired."""
    snapshot = metadata.snapshot_by_name(branch)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
