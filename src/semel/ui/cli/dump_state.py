"""How `semel dump` shows entries of a journal, and the state that they lead to, wherever the log is."""

import json
import struct
from dataclasses import fields
from typing import Any, Final

from semel.log.at_rest import SECRET_FIELDS, BatchAppended, Catalog, Entry, Examined, TopicCreated, decode
from semel.ui.cli.display import counted, printable
from semel.wire.batch import CODEC_MASK, CONTROL_BIT, NO_PRODUCER, TRANSACTIONAL_BIT, BatchHeader, read_header
from semel.wire.sequences import advance, epoch_of, last_heard_ms, window_of

# Sorted by their numbers in a batch's attributes.
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def show(line: str) -> None:
    """Print a line. Clients choose the names of groups and transactional ids, and a terminal obeys some characters."""
    print(printable(line))


def describe_entry(kind: int, payload: memoryview, names: dict[int, str]) -> str:
    try:
        change: Entry = decode(kind, payload)
        if isinstance(change, BatchAppended):
            where = f"{names.get(change.number, f'topic {change.number}')}-{change.partition}"
            return f"BatchAppended {where} at_ms={change.at_ms} {describe_batch(read_header(change.batch))}"
    except (LookupError, TypeError, ValueError, struct.error) as error:
        # The checksum is right, so another version of semel wrote the entry.
        return f"kind {kind}, {len(payload)} bytes: {error}"
    if isinstance(change, TopicCreated):
        names.setdefault(change.number, change.name)
    values = ((field.name, getattr(change, field.name)) for field in fields(change))
    shown = (f"{name}={_shown_value(name, value)}" for name, value in values)
    return " ".join([type(change).__name__, *shown])


def _shown_value(name: str, value: object) -> object:
    if name in SECRET_FIELDS:
        return "(hidden)"
    return value.hex() if isinstance(value, bytes) else value


def describe_batch(header: BatchHeader) -> str:
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


def show_topics(examined: Examined) -> None:
    """Show each topic with its partitions, and how many transactions and groups there are."""
    for topic in examined.state.catalog:
        configs = "".join(f" {name}={value}" for name, value in sorted(topic.configs.items()))
        partitions = counted(topic.partition_count, "partition")
        show(f"topic       {topic.name}, number {topic.number}, id {topic.topic_id.hex()}, {partitions}{configs}")
        for index, holder in enumerate(examined.state.partitions.of(topic)):
            partition = holder.state
            if partition.next_offset:
                parts = [f"offsets {partition.log_start} to {partition.next_offset}"]
                if partition.open_transactions:
                    parts.append(f"stable to {partition.stable_offset}")
                parts.append(counted(len(partition.producers), "producer"))
                show(f"  partition {index}  {', '.join(parts)}")
    transactions = examined.state.transactions
    show(f"transactions  {counted(len(transactions), 'transactional id')}, {transactions.open_count} open")
    show(f"groups        {counted(len(examined.state.groups), 'group')}")


# -- producers --------------------------------------------------------------------------------------------------


def show_producers(examined: Examined) -> None:
    """Show the state of each producer by which its next batch will be judged."""
    print()
    for owner, until in examined.state.producer_ids.taken():
        show(f"producer ids below {until} are taken" + (f", in the range of {owner}" if owner else ""))
    for holder in examined.state.partitions.all():
        number, index = holder.name
        for producer_id, state in holder.state.producers.items():
            window = window_of(state)
            last = window[-1].last_sequence if window else "none"
            show(
                f"{_name_of(examined.state.catalog, number)}-{index}  producer {producer_id}  epoch {epoch_of(state)}  "
                f"last sequence {last}  last heard {last_heard_ms(state)}"
            )
            for batch in window:
                show(
                    f"    sequences {batch.first_sequence} to {batch.last_sequence} "
                    f"went to offsets {batch.base_offset} to {batch.base_offset + batch.record_count - 1}"
                )


# -- transactions and groups ------------------------------------------------------------------------------------


def show_transactions(examined: Examined) -> None:
    """Show the owner of each transactional id, with the partitions and groups of its open transaction."""
    print()
    for described in examined.state.transactions.all_described():
        owner = described.owner
        show(
            f"transactional id {owner.transactional_id}  producer {owner.producer_id}  epoch {owner.producer_epoch}  "
            f"{described.state.name}  timeout {owner.timeout_ms} ms  changed {owner.changed_at_ms}"
        )
        for name in described.partitions:
            holder = examined.state.partitions.at(*name)
            first = None if holder is None else holder.state.open_transactions.get(owner.producer_id)
            begins = "nothing in it yet" if first is None else f"from offset {first} on"
            show(f"    {_name_of(examined.state.catalog, name.number)}-{name.partition}  {begins}")


def show_groups(examined: Examined) -> None:
    """Show the committed and pending offsets of each group, and its members."""
    print()
    for group in examined.state.groups:
        show(f"group {group.name}")
        for name, offset in group.offsets.committed:
            noted = f"  noted {offset.metadata!r}" if offset.metadata else ""
            show(
                f"    {_name_of(examined.state.catalog, name.number)}-{name.partition}  offset {offset.offset}  "
                f"committed {offset.at_ms}{noted}"
            )
        for producer_id, pending in group.offsets.pending.items():
            for name, offset in pending:
                where = f"{_name_of(examined.state.catalog, name.number)}-{name.partition}"
                show(f"    {where}  offset {offset.offset}  if producer {producer_id} commits")
        if group.machine is not None:
            show(f"    members {json.dumps(group.machine.snapshot(), default=_in_hexadecimal)}")


def _in_hexadecimal(of_a_member: Any) -> str:
    """What a member says of itself, and what it was assigned, are bytes of its client's."""
    return bytes(of_a_member).hex()


def _name_of(catalog: Catalog, number: int) -> str:
    topic = catalog.numbered(number)
    return topic.name if topic is not None else f"topic {number}"
