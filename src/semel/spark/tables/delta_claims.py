"""The claim of a sink in a Delta table: application transactions, which count as long as the table has their rows.

The library stores them but does not enforce them. A claim says which version committed it, and counts only while that
version is part of what the table is: `RESTORE` takes rows away and leaves the claim. Nothing here writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from semel.spark.claims import BatchRefused
from semel.spark.tables.claims import TableClaim

if TYPE_CHECKING:
    from deltalake import DeltaTable

APP_ID_PREFIX = "semel-sink-"


@dataclass(frozen=True)
class Location:
    """Where a table is: a directory, or a URL of an object store, with what `deltalake` needs to get there."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.uri

    @property
    def is_store(self) -> bool:
        return "://" in self.uri

    def __truediv__(self, below: str) -> Location:
        return replace(self, uri=f"{self.uri}/{below}")

    def table(self, version: int | None = None) -> DeltaTable:
        """The table as it is now, or as of a version."""
        from deltalake import DeltaTable

        return DeltaTable(self.uri, version=version, storage_options={**self.options})


def numbered(claim: TableClaim) -> TableClaim:
    """The claim as numbers, because an application transaction of Delta is a number."""
    return TableClaim(str(number_of(claim.query_id)), claim.batch_id, str(number_of(claim.digest)))


def number_of(text: str) -> int:
    """60 bits, so that it is positive in every signed 64-bit type."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


def app_ids(sink: str) -> tuple[str, str, str, str]:
    """The application transactions of one claim. All of them change in the same commit."""
    name = f"{APP_ID_PREFIX}{sink}"
    return name, f"{name}/query", f"{name}/digest", f"{name}/attempt"


def held(table: DeltaTable, sink: str) -> TableClaim | None:
    """The sink's claim, if all its parts exist: one alone is not ours."""
    batch_id, query, digest, attempt = map(table.transaction_version, app_ids(sink))
    return (
        None if batch_id is None or None in (query, digest, attempt) else TableClaim(str(query), batch_id, str(digest))
    )


def version_app_id(sink: str) -> str:
    """The application transaction that says which version of the table committed the claim."""
    return f"{APP_ID_PREFIX}{sink}/version"


def standing(table: DeltaTable, sink: str, location: Location) -> TableClaim | None:
    """The last claim whose rows the table still has, as far as its log tells. `RESTORE` to an older version keeps newer
    application transactions, so the claim of that older version counts."""
    from deltalake.exceptions import DeltaError

    while True:
        claim = held(table, sink)
        if claim is None:
            return None
        restored = restored_below(table, table.transaction_version(version_app_id(sink)) or 0, location)
        if restored is None:
            return claim
        try:
            table = location.table(restored)
        except DeltaError as error:
            raise BatchRefused(
                f"{location} was restored to version {restored}, which is older than batch {claim.batch_id} of "
                f"sink {sink!r}, and nobody can tell which batches it has: its log no longer has that version "
                f"({error}). Look which rows are missing, write them, and go on under a new sink_id"
            ) from None


def restored_below(table: DeltaTable, version: int, location: Location) -> int | None:
    """The version to which the table was taken back, if that was a version before this one, and nothing has brought
    this one back since. The log is read from the newest entry on, and what a restore has left out is passed over.
    """
    newest = table.version()
    for entry in table.history(newest - version) if newest > version else []:
        if version < entry["version"] <= newest and entry["operation"] == "RESTORE":
            newest = restored_version(location, entry["operationParameters"])
            if newest < version:
                return newest
    return None


def restored_version(location: Location, parameters: Mapping[str, str]) -> int:
    """The version that a restore names, by its number or by a time."""
    if (number := parameters.get("version")) is not None:
        return int(number)
    found = location.table()
    time = parameters.get("datetime") or parameters.get("timestamp") or ""
    found.load_as_version(datetime.fromtimestamp(int(time) / 1000, UTC) if time.isdigit() else time)
    return int(found.version())
