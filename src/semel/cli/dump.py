"""`semel dump`: shows exactly what a data directory contains.

It only reads: it takes no lock, changes no byte, and may be used on the directory of a running broker, on a copy, and
on a damaged directory. If it cannot read further, it names the file and the place, and goes on with the rest.
"""

import argparse
import itertools
import json
import os
import struct
from dataclasses import fields
from typing import Final

from semel.cli.display import counted, printable
from semel.cli.errors import Failure
from semel.cli.progress import Progress
from semel.core.batch import CODEC_MASK, CONTROL_BIT, NO_PRODUCER, TRANSACTIONAL_BIT, BatchHeader, read_header
from semel.core.entries import BatchAppended, Entry, TopicCreated
from semel.core.producers import advance, epoch_of, last_heard_ms, window_of
from semel.core.topics import Catalog
from semel.storage import cache, journal
from semel.storage.encoding import SECRET_FIELDS, decode
from semel.storage.examination import Examined, StoredBatch, examine, segment_paths, walk_segment
from semel.storage.files import Files, ReadOnlyFiles
from semel.storage.journal import Damaged
from semel.storage.segment import TOPICS

EXAMPLE: Final = """  semel dump ./data
  semel dump ./data --journal --producers"""

# Sorted by their numbers in a batch's attributes.
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="the directory; a broker may be running on it")
    parser.add_argument("--journal", action="store_true", help="show every entry of the journal")
    parser.add_argument(
        "--segments",
        action="store_true",
        help="show every batch of every segment, and check the blocks of aborted transactions",
    )
    parser.add_argument("--producers", action="store_true", help="show every producer, with its window of batches")
    parser.add_argument(
        "--transactions",
        action="store_true",
        help="show every transactional id, with the partitions and groups of its open transaction",
    )
    parser.add_argument("--groups", action="store_true", help="show every group, with its offsets and members")


def run(options: argparse.Namespace) -> int:
    if not os.path.isdir(options.data):
        raise Failure(f"{options.data}: there is no such directory")
    files = ReadOnlyFiles(options.data)
    try:
        names = files.names("")
    except OSError as error:
        raise Failure(f"{options.data}: {error.strerror}") from None
    if not {"checkpoint", journal.DIRECTORY, TOPICS, cache.MARK} & set(names):
        raise Failure(f"{options.data}: this is not a data directory of semel")
    try:
        store = cache.store_of(files)
    except OSError as error:
        raise Failure(f"{files.describe(cache.MARK)}: {error.strerror}") from None
    examined = examine(files)
    if store is not None:
        _show_cache(store)
        return 1 if options.segments and _show_segments(files, examined) else 0
    troubles = [] if examined.stopped is None else [examined.stopped]
    _show_overview(files, examined)
    if options.journal:
        troubles += _show_journal(files, examined)
    if options.segments:
        troubles += _show_segments(files, examined)
    if options.producers:
        _show_producers(examined)
    if options.transactions:
        _show_transactions(examined)
    if options.groups:
        _show_groups(examined)
    return 1 if troubles else 0


def _show(line: str) -> None:
    """Print a line. Clients choose the names of groups and transactional ids, and a terminal obeys some characters."""
    print(printable(line))


# -- overview ---------------------------------------------------------------------------------------------------


def _show_cache(store: str) -> None:
    _show(f"cache       of the log in {store or 'a store'}")
    _show("            its journal lies there, with topics, producers, transactions and groups;")
    _show("            the records here were read from it, and --segments shows them")


def _show_overview(files: Files, examined: Examined) -> None:
    state = examined.checkpoint
    if state is not None:
        life, _, position = state["journal"]
        how = "after a clean stop" if state["clean"] else "while running"
        _show(f"checkpoint  cluster {state['cluster_id']}, life {life}, journal position {position}, written {how}")
    entries = counted(examined.replayed_entries, "entry", "entries")
    place = f"position {examined.position}, in {counted(len(journal.starts_of(files)), 'file')}"
    _show(f"journal     {entries} after the checkpoint, to {place}")
    if examined.stopped is not None:
        _show(f"STOPPED     {examined.stopped}")
    for topic in examined.state.catalog:
        configs = "".join(f" {name}={value}" for name, value in sorted(topic.configs.items()))
        partitions = counted(topic.partition_count, "partition")
        _show(f"topic       {topic.name}, number {topic.number}, id {topic.topic_id.hex()}, {partitions}{configs}")
        for index, holder in enumerate(examined.state.partitions.of(topic)):
            partition = holder.state
            if partition.next_offset:
                parts = [f"offsets {partition.log_start} to {partition.next_offset}"]
                if partition.open_transactions:
                    parts.append(f"stable to {partition.stable_offset}")
                parts.append(counted(len(partition.producers), "producer"))
                _show(f"  partition {index}  {', '.join(parts)}")
    transactions = examined.state.transactions
    _show(f"transactions  {counted(len(transactions), 'transactional id')}, {transactions.open_count} open")
    _show(f"groups        {counted(len(examined.state.groups), 'group')}")


# -- journal ----------------------------------------------------------------------------------------------------


def _show_journal(files: Files, examined: Examined) -> list[str]:
    """Show every file of the journal from its beginning; return the damage."""
    troubles = []
    starts = journal.starts_of(files)
    names = {topic.number: topic.name for topic in examined.state.catalog}
    state = examined.checkpoint
    checkpoint_position = state["journal"][2] if state is not None else -1
    for start, following in itertools.zip_longest(starts, starts[1:]):
        path = journal.path_of(start)
        print()
        _show(path)
        position = start
        is_superseded = False
        try:
            for sight in journal.look_into(files, start):
                entry = sight.entry
                if sight.skipped:
                    troubles.append(_say(f"no valid entry in {sight.skipped} bytes from offset {position - start} on"))
                if following is not None and entry.position >= following and not is_superseded:
                    is_superseded = True
                    _show(f"  from here on replaced by {journal.path_of(following)}: a later life began there")
                if 0 <= checkpoint_position <= entry.position:
                    _show("  the checkpoint holds everything above")
                    checkpoint_position = -1
                shown = "end of this file" if sight.is_roll else _describe_entry(entry, names)
                _show(f"  {entry.position:>12}  life {sight.life}  durable to {sight.durable:>12}  {shown}")
                position = entry.end
        except FileNotFoundError:
            _show("  used again under another name meanwhile")
            continue
        except OSError as error:
            troubles.append(_say(error.strerror or str(error)))
        if position == checkpoint_position:
            _show("  the checkpoint holds everything above")
            checkpoint_position = -1
        _show(f"  {position:>12}  entries end here, at offset {position - start} of the file")
    return troubles


def _say(trouble: str) -> str:
    _show(f"  STOPPED: {trouble}")
    return trouble


def _describe_entry(entry: journal.JournalEntry, names: dict[int, str]) -> str:
    try:
        change: Entry = decode(entry.kind, entry.payload)
        if isinstance(change, BatchAppended):
            where = f"{names.get(change.number, f'topic {change.number}')}-{change.partition}"
            return f"BatchAppended {where} at_ms={change.at_ms} {_describe_batch(read_header(change.batch))}"
    except (LookupError, TypeError, ValueError, struct.error) as error:
        # The checksum is right, so another version of semel wrote the entry.
        return f"kind {entry.kind}, {len(entry.payload)} bytes: {error}"
    if isinstance(change, TopicCreated):
        names.setdefault(change.number, change.name)
    values = ((field.name, getattr(change, field.name)) for field in fields(change))
    shown = (f"{name}={_shown_value(name, value)}" for name, value in values)
    return " ".join([type(change).__name__, *shown])


def _shown_value(name: str, value: object) -> object:
    if name in SECRET_FIELDS:
        return "(hidden)"
    return value.hex() if isinstance(value, bytes) else value


def _describe_batch(header: BatchHeader) -> str:
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    parts = [f"offsets {header.base_offset} to {header.next_offset - 1}", f"{header.batch_bytes} bytes"]
    if header.producer_id != NO_PRODUCER:
        last = advance(header.base_sequence, header.record_count - 1)
        parts.append(
            f"producer {header.producer_id}/{header.producer_epoch} sequences {header.base_sequence} to {last}"
        )
    parts.append(f"times {header.base_timestamp} to {header.max_timestamp}")
    if codec:
        parts.append(_CODECS[codec] if codec < len(_CODECS) else f"codec {codec}")
    if attributes & TRANSACTIONAL_BIT:
        parts.append("transactional")
    if attributes & CONTROL_BIT:
        parts.append("control")
    return ", ".join(parts)


# -- segments ---------------------------------------------------------------------------------------------------


def _show_segments(files: Files, examined: Examined) -> list[str]:
    """Show every batch in every segment on disk, even if no partition knows the segment. Return what is wrong.

    The blocks of old aborted transactions beside the segments are only checked.
    """
    troubles: list[str] = []
    progress = Progress("reading segments")
    done_bytes = 0

    def show_batch(batch: StoredBatch) -> None:
        mark = "" if batch.is_intact else "  DAMAGED: the checksum does not match"
        if mark:
            troubles.append(mark)
        _show(f"  {batch.position:>12}  {_describe_batch(batch.header)}{mark}")

    def count(more_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += more_bytes
        progress.show(done_bytes)

    for topic in files.names(TOPICS):
        for partition in files.names(f"{TOPICS}/{topic}"):
            for path in segment_paths(files, f"{TOPICS}/{topic}/{partition}"):
                print()
                _show(path)
                try:
                    end = walk_segment(files, path, show_batch, count)
                except FileNotFoundError:
                    _show("  removed meanwhile")
                    continue
                except OSError as error:
                    troubles.append(_say(error.strerror or str(error)))
                    continue
                if end.trouble is not None:
                    troubles.append(_say(f"at offset {end.position} of {end.file_bytes} bytes: {end.trouble}"))
                else:
                    _show(f"  {end.position:>12}  {'sealed, with an index' if end.is_sealed else 'end of the file'}")
    progress.end()
    for blocks in examined.blocks:
        try:
            blocks.read_all()
        except FileNotFoundError:
            # The file was missing from the start, which the overview reports, or has been removed meanwhile.
            continue
        except OSError as error:
            troubles.append(_say(error.strerror or str(error)))
        except Damaged as damage:
            troubles.append(_say(str(damage)))
    return troubles


# -- producers --------------------------------------------------------------------------------------------------


def _show_producers(examined: Examined) -> None:
    """Show the state of each producer by which its next batch will be judged."""
    print()
    _show(f"producer ids below {examined.state.producer_ids.next_id} are taken")
    for holder in examined.state.partitions.all():
        number, index = holder.name
        for producer_id, state in holder.state.producers.items():
            window = window_of(state)
            last = window[-1].last_sequence if window else "none"
            _show(
                f"{_name_of(examined.state.catalog, number)}-{index}  producer {producer_id}  epoch {epoch_of(state)}  "
                f"last sequence {last}  last heard {last_heard_ms(state)}"
            )
            for batch in window:
                _show(
                    f"    sequences {batch.first_sequence} to {batch.last_sequence} "
                    f"went to offsets {batch.base_offset} to {batch.base_offset + batch.record_count - 1}"
                )


# -- transactions and groups ------------------------------------------------------------------------------------


def _show_transactions(examined: Examined) -> None:
    """Show the owner of each transactional id, with the partitions and groups of its open transaction."""
    print()
    for described in examined.state.transactions.all_described():
        owner = described.owner
        _show(
            f"transactional id {owner.transactional_id}  producer {owner.producer_id}  epoch {owner.producer_epoch}  "
            f"{described.state.name}  timeout {owner.timeout_ms} ms  changed {owner.changed_at_ms}"
        )
        for name in described.partitions:
            holder = examined.state.partitions.at(*name)
            first = None if holder is None else holder.state.open_transactions.get(owner.producer_id)
            begins = "nothing in it yet" if first is None else f"from offset {first} on"
            _show(f"    {_name_of(examined.state.catalog, name.number)}-{name.partition}  {begins}")


def _show_groups(examined: Examined) -> None:
    """Show the committed and pending offsets of each group, and its members."""
    print()
    for group in examined.state.groups:
        _show(f"group {group.name}")
        for name, offset in group.offsets.committed:
            noted = f"  noted {offset.metadata!r}" if offset.metadata else ""
            _show(
                f"    {_name_of(examined.state.catalog, name.number)}-{name.partition}  offset {offset.offset}  "
                f"committed {offset.at_ms}{noted}"
            )
        for producer_id, pending in group.offsets.pending.items():
            for name, offset in pending:
                where = f"{_name_of(examined.state.catalog, name.number)}-{name.partition}"
                _show(f"    {where}  offset {offset.offset}  if producer {producer_id} commits")
        if group.machine is not None:
            _show(f"    members {json.dumps(group.machine.snapshot())}")


def _name_of(catalog: Catalog, number: int) -> str:
    topic = catalog.numbered(number)
    return topic.name if topic is not None else f"topic {number}"
