"""`semel dump`: shows exactly what a data directory contains, or the store of a log (`store_dump`).

It only reads: it takes no lock, changes no byte, and may be used on the directory of a running broker, on a copy, and
on a damaged directory. If it cannot read further, it names the file and the place, and goes on with the rest.
"""

import argparse
import itertools
import os
from typing import Final

from semel.log.at_rest import (
    TOPICS,
    Damaged,
    Examined,
    StoredBatch,
    cache,
    examine,
    journal,
    segment_paths,
    walk_segment,
)
from semel.log.files import Files, ReadOnlyFiles
from semel.ui.cli.display import counted
from semel.ui.cli.dump_state import (
    describe_batch,
    describe_entry,
    show,
    show_groups,
    show_producers,
    show_topics,
    show_transactions,
)
from semel.ui.cli.errors import Failure
from semel.ui.cli.progress import Progress

EXAMPLE: Final = """  semel dump ./data
  semel dump ./data --journal --producers
  semel dump s3://bucket/prefix --journal"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="the directory, or the URL of a store; a broker may be running on it"
    )
    parser.add_argument("--journal", action="store_true", help="show every entry of the journal")
    parser.add_argument(
        "--segments",
        action="store_true",
        help="show every batch of every segment, and check the blocks of aborted transactions; of a store, compare "
        "every object of the checkpoint with its digests",
    )
    parser.add_argument("--producers", action="store_true", help="show every producer, with its window of batches")
    parser.add_argument(
        "--transactions",
        action="store_true",
        help="show every transactional id, with the partitions and groups of its open transaction",
    )
    parser.add_argument("--groups", action="store_true", help="show every group, with its offsets and members")


def run(options: argparse.Namespace) -> int:
    if "://" in options.data:
        # obstore and PostgreSQL's driver take time to import.
        from semel.ui.cli.store_dump import dump_store

        return dump_store(options)
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
        show_producers(examined)
    if options.transactions:
        show_transactions(examined)
    if options.groups:
        show_groups(examined)
    return 1 if troubles else 0


# -- overview ---------------------------------------------------------------------------------------------------


def _show_cache(store: str) -> None:
    show(f"cache       of the log in {store or 'a store'}")
    show("            its journal lies there, with topics, producers, transactions and groups;")
    show("            the records here were read from it, and --segments shows them")


def _show_overview(files: Files, examined: Examined) -> None:
    state = examined.checkpoint
    if state is not None:
        life, _, position = state["journal"]
        how = "after a clean stop" if state["clean"] else "while running"
        show(f"checkpoint  cluster {state['cluster_id']}, life {life}, journal position {position}, written {how}")
    entries = counted(examined.replayed_entries, "entry", "entries")
    place = f"position {examined.position}, in {counted(len(journal.starts_of(files)), 'file')}"
    show(f"journal     {entries} after the checkpoint, to {place}")
    if examined.stopped is not None:
        show(f"STOPPED     {examined.stopped}")
    show_topics(examined)


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
        show(path)
        position = start
        is_superseded = False
        try:
            for sight in journal.look_into(files, start):
                entry = sight.entry
                if sight.skipped:
                    troubles.append(_say(f"no valid entry in {sight.skipped} bytes from offset {position - start} on"))
                if following is not None and entry.position >= following and not is_superseded:
                    is_superseded = True
                    show(f"  from here on replaced by {journal.path_of(following)}: a later life began there")
                if 0 <= checkpoint_position <= entry.position:
                    show("  the checkpoint holds everything above")
                    checkpoint_position = -1
                shown = "end of this file" if sight.is_roll else describe_entry(entry.kind, entry.payload, names)
                show(f"  {entry.position:>12}  life {sight.life}  durable to {sight.durable:>12}  {shown}")
                position = entry.end
        except FileNotFoundError:
            show("  used again under another name meanwhile")
            continue
        except OSError as error:
            troubles.append(_say(error.strerror or str(error)))
        if position == checkpoint_position:
            show("  the checkpoint holds everything above")
            checkpoint_position = -1
        show(f"  {position:>12}  entries end here, at offset {position - start} of the file")
    return troubles


def _say(trouble: str) -> str:
    show(f"  STOPPED: {trouble}")
    return trouble


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
        show(f"  {batch.position:>12}  {describe_batch(batch.header)}{mark}")

    def count(more_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += more_bytes
        progress.show(done_bytes)

    for topic in files.names(TOPICS):
        for partition in files.names(f"{TOPICS}/{topic}"):
            for path in segment_paths(files, f"{TOPICS}/{topic}/{partition}"):
                print()
                show(path)
                try:
                    end = walk_segment(files, path, show_batch, count)
                except FileNotFoundError:
                    show("  removed meanwhile")
                    continue
                except OSError as error:
                    troubles.append(_say(error.strerror or str(error)))
                    continue
                if end.trouble is not None:
                    troubles.append(_say(f"at offset {end.position} of {end.file_bytes} bytes: {end.trouble}"))
                else:
                    show(f"  {end.position:>12}  {'sealed, with an index' if end.is_sealed else 'end of the file'}")
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
