"""The data that a start of the broker may leave out if some is lost or contradicts the rest, and the copies of it.

A start goes on without records and entries that are gone or damaged (`Lost`), and copies what is left of their files.
An entry that cannot follow those before it is skipped. Members of a group that contradict each other are left out, and
join again. An open transaction without an owner gets one, so that its deadline ends it. A copy of each is written to
`set-aside/`, and is durable before the start goes on. Nothing here decides to do any of this: a person does (`semel
repair --set-aside`).
"""

import contextlib
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

from semel.log.core.entries import TransactionalIdClaimed, TransactionGrew
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.share import ShareGroup, ShareTally
from semel.log.core.transactions import Transactions
from semel.log.storage.aside import DIRECTORY, Aside
from semel.log.storage.files import File, Files
from semel.log.storage.journal import Lost, Misfit
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Segment, footer
from semel.log.storage.verification import Fault, proven_after
from semel.wire.batch import BatchHeader
from semel.wire.sequences import epoch_of


class Repair:
    """Leaves nothing out; `SettingAside` does."""

    skipped_positions: frozenset[int] = frozenset()

    def lose(self, lost: Lost) -> None:
        """Go on without this data, or raise the error."""
        raise lost

    def keep(self, segment: Segment, fault: Fault) -> list[Segment]:
        """Segments with what is right after damage in this one; none are made."""
        return []

    def mended(self, state: dict[str, Any]) -> dict[str, Any]:
        """The checkpoint's content, without the data that is left out."""
        return state

    def adoption(
        self, partition: PartitionLog, producer_id: int, transactions: Transactions
    ) -> Sequence[TransactionalIdClaimed | TransactionGrew]:
        """The entries that give an owner to a transaction without one; none to leave it as it is."""
        return ()


class SettingAside(Repair):
    """Leaves out contradicting data, keeps a copy of each piece, and reports each in one line."""

    def __init__(self, files: Files, tell: Callable[[str], None]) -> None:
        self._files = files
        self._tell = tell
        self._reasons: set[str] = set()
        self._aside = Aside(files)

    def lose(self, lost: Lost) -> None:
        if str(lost) not in self._reasons:
            for path in lost.paths:
                # A file that is gone leaves no copy.
                with contextlib.suppress(FileNotFoundError):
                    self._aside.copy(path)
            self._reasons.add(str(lost))
            self._tell(str(lost))

    def keep(self, segment: Segment, fault: Fault) -> list[Segment]:
        try:
            file = self._files.open(segment.path)
        except FileNotFoundError:
            return []
        with contextlib.closing(file):
            runs = proven_after(file, segment, fault) if fault.next_offset < segment.next_offset else []
            kept = [self._segment_of(file, segment, run) for run in runs]
        if kept:
            self._files.sync_directory(segment.path.rpartition("/")[0])
        return kept

    def _segment_of(self, file: File, damaged: Segment, run: list[tuple[int, BatchHeader]]) -> Segment:
        """A sealed segment with these batches of another one, which are neighbours in its file."""
        first = run[0][1].base_offset
        kept = Segment(damaged.path.rpartition("/")[0], first, damaged.begun_at_ms, damaged.generation)
        for _, header in run:
            kept.note(header)
        assert kept.index is not None
        parts = [file.read_at(kept.size, run[0][0]), *footer(kept.index)]
        kept.index, kept.horizon_ms = None, damaged.horizon_ms
        copy = self._files.open(kept.path, create=True)
        with contextlib.closing(copy):
            copy.truncate(copy.write_at(parts, 0))
            copy.sync()
        return kept

    def skip(self, misfit: Misfit) -> None:
        """Skip this entry."""
        entry = misfit.entry
        self.skipped_positions |= {entry.position}
        payload = {"kind": entry.kind, "payload": b64encode(entry.payload).decode()}
        self._keep(
            f"entry-{entry.position}", str(misfit), {"position": entry.position, "entry": misfit.name, **payload}
        )

    def mended(self, state: dict[str, Any]) -> dict[str, Any]:
        groups = [self._mended_group(group) for group in state["groups"]["groups"]]
        return {**state, "groups": {**state["groups"], "groups": groups}}

    def _mended_group(self, group: dict[str, Any]) -> dict[str, Any]:
        members = group["members"]
        try:
            kind = None if members is None else members.get("kind")
            if members is not None and kind == ConsumerGroup.KIND:
                ConsumerGroup().restore(members)
            elif members is not None and kind == ShareGroup.KIND:
                ShareGroup(ShareTally()).restore(members)
        except ValueError as error:
            why = f"the members of group '{group['name']}' contradict each other, and have to join again: {error}"
            self._keep(f"members-{len(self._reasons)}", why, {"group": group["name"], "members": members})
            return {**group, "members": None}
        return group

    def adoption(
        self, partition: PartitionLog, producer_id: int, transactions: Transactions
    ) -> Sequence[TransactionalIdClaimed | TransactionGrew]:
        first_offset = partition.state.open_transactions[producer_id]
        producer = partition.state.producers.get(producer_id)
        epoch = 0 if producer is None else epoch_of(producer)
        stray = {"partition": partition.directory, "producer_id": producer_id, "epoch": epoch, "from": first_offset}
        why = (
            f"{partition.directory}: no transactional id has the transaction of producer {producer_id} from offset "
            f"{first_offset} on; the next start aborts it"
        )
        self._keep(f"transaction-{producer_id}-{partition.topic_number}-{partition.index}", why, stray)
        grew = TransactionGrew(producer_id, epoch, (partition.name,), (), 0)
        if transactions.owner(producer_id) is not None:
            return (grew,)
        return TransactionalIdClaimed(f"set-aside-{producer_id}", producer_id, epoch, -1, -1, 1, 0), grew

    def _keep(self, name: str, why: str, content: dict[str, Any]) -> None:
        """Keep a copy, which is durable when this returns, and report it; only once if the start is tried several
        times.
        """
        if why in self._reasons:
            return
        path = f"{DIRECTORY}/{name}.json"
        self._files.make_directory(DIRECTORY)
        file = self._files.open(path, create=True)
        try:
            text = json.dumps({"why": why, **content}, indent=1).encode()
            file.write_at([text], 0)
            file.truncate(len(text))
            file.sync()
        finally:
            file.close()
        self._files.sync_directory(DIRECTORY)
        self._files.sync_directory("")
        self._reasons.add(why)
        self._tell(f"{why}; kept in {self._files.describe(path)}")
