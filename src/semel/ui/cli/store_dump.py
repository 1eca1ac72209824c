"""`semel dump URL`: shows exactly what the store of a log contains. It only reads, and asks no broker."""

import argparse
import asyncio

from semel.log.status import BrokenHistory
from semel.log.store_logs import ExaminedStore, Slot, entries, examine_store, objects_of, slots_of
from semel.log.stores import Store, StoreError, open_store
from semel.ui.cli.display import counted
from semel.ui.cli.dump_state import describe_entry, show, show_groups, show_producers, show_topics, show_transactions
from semel.ui.cli.errors import Failure


def dump_store(options: argparse.Namespace) -> int:
    """Show what the options ask for; the exit code is 1 if something is damaged."""
    try:
        return asyncio.run(_dump(open_store(options.data, may_be_new=False), options))
    except (StoreError, BrokenHistory) as error:
        raise Failure(str(error)) from None


async def _dump(store: Store, options: argparse.Namespace) -> int:
    try:
        found = await examine_store(store)
        _show_overview(store, found)
        troubles = int(found.examined.stopped is not None)
        if options.journal:
            troubles += await _show_journal(store, found)
        if options.segments:
            troubles += await _show_objects(store, found)
    finally:
        await store.close()
    if options.producers:
        show_producers(found.examined)
    if options.transactions:
        show_transactions(found.examined)
    if options.groups:
        show_groups(found.examined)
    return 1 if troubles else 0


def _show_overview(store: Store, found: ExaminedStore) -> None:
    show(f"store       {store.describe()}, cluster {found.cluster_id}")
    floor = found.floor
    after = ""
    if floor is None or not floor.pieces:
        show("checkpoint  none yet")
    else:
        after = " after the checkpoint"
        objects = counted(len(found.contents.objects), "object")
        show(f"checkpoint  epoch {floor.epoch}, of the slots below {floor.slot}, with records in {objects}")
        show(f"            slots below {floor.deleted_below} may be deleted, except for fences")
    slots, read = counted(found.slots, "slot"), counted(found.examined.replayed_entries, "entry", "entries")
    history = found.history
    show(f"journal     {read} in {slots}{after}; the next slot is {history.next_slot}, in epoch {history.epoch}")
    if found.examined.stopped is not None:
        show(f"STOPPED     {found.examined.stopped}")
    show_topics(found.examined)


async def _show_journal(store: Store, found: ExaminedStore) -> int:
    """Show every slot that is there; return how many are damaged."""
    troubles = 0
    names = {topic.number: topic.name for topic in found.examined.state.catalog}
    async for key, read in slots_of(store):
        print()
        try:
            if not isinstance(read, Slot):
                raise read
            head = read.head
            what = f"{head.body_bytes} bytes from position {head.position} on" if head.body_bytes else "a fence"
            show(f"{key}  epoch {head.epoch}, {what}")
            for kind, payload in entries(head.slot, read.body):
                show(f"  {describe_entry(kind, payload, names)}")
        except BrokenHistory as damage:
            troubles += 1
            show(f"{key}  DAMAGED: {damage}")
    return troubles


async def _show_objects(store: Store, found: ExaminedStore) -> int:
    """Compare every object of the checkpoint with its digests; return how many are damaged or gone."""
    troubles = 0
    print()
    async for checked in objects_of(store, found.contents):
        state = f"DAMAGED: {checked.trouble}" if checked.trouble else "intact"
        troubles += bool(checked.trouble)
        show(f"{checked.key}  {checked.size} bytes, {counted(checked.extents, 'extent')}, {state}")
    return troubles
