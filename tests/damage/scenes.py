"""Data directories to damage: young, old and compacted ones, after a clean stop and after a kill.

Each is made by a log with tiny files, so that it has every kind of file, and remembers what was acknowledged. A scene
also has older copies of its files, and those of another broker that did the same.
"""

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ledger import SETTINGS, Caller, Ledger
from log_contents import content_of
from semel.log.compaction.plan import Bounds, plan
from semel.log.core.topics import Topic
from semel.log.storage.files import DiskFiles
from semel.log.storage.log import Log
from semel.log.storage.partition_log import PartitionLog
from semel.wire.batch import read_header
from semel.wire.records import Record, encode_batch

# The content of each file by its path; None for a directory.
Tree = dict[str, bytes | None]
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "1024",
    "min_cleanable_dirty_ratio": "0",
    "segment_ms": "50000",
    "retention_ms": "-1",
}


@dataclass
class Scene:
    """A directory with a log, as it was left."""

    name: str
    root: Path
    tree: Tree
    # How the files were earlier, and what another broker has at the same paths.
    earlier: Tree
    others: Tree
    # Raises AssertionError if a log does not hold what was acknowledged.
    judge: Callable[[Log], None]

    def restore(self) -> None:
        """Put everything back as it was left. The directory itself stays, because a start knows it by its inode."""
        for path in self.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for name, content in self.tree.items():
            path = self.root / name
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content)


def tree_of(root: Path) -> Tree:
    """All files below a directory. A link counts as where it leads."""
    return {
        path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes() if path.exists() else b"(gone)"
        for path in sorted(root.rglob("*"))
    }


def topic_of(caller: Caller, name: str) -> tuple[Topic, list[PartitionLog]]:
    topic = caller.log.state.catalog.named(name)
    assert topic is not None
    return topic, caller.log.state.partitions.of(topic)


def send(caller: Caller, partition: PartitionLog, producer_id: int, *sizes: int) -> None:
    for size in sizes:
        caller.append(partition, caller.next_batch(partition, producer_id, 2, size))


def begin(caller: Caller) -> int:
    caller.create("orders", 2, segment_bytes="1024", retention_ms="-1")
    producer_id = caller.producer_id()
    for partition in topic_of(caller, "orders")[1]:
        send(caller, partition, producer_id, 300, 700)
    caller.sync()
    return producer_id


def more(caller: Caller, producer_id: int) -> None:
    """Records over several files of the journal, offsets, and an aborted transaction."""
    _, partitions = topic_of(caller, "orders")
    owner = caller.claim("copier")
    for _ in range(3):
        send(caller, partitions[0], owner, 300)
        caller.sync()
        caller.end("copier", False, raises_epoch=False)
        for partition in partitions:
            send(caller, partition, producer_id, 400, 600, 300)
        caller.commit_offset("readers", partitions[0], 3)
    caller.sync()


def young(caller: Caller, note_earlier: Callable[[], None]) -> None:
    producer_id = begin(caller)
    note_earlier()
    more(caller, producer_id)


def old(caller: Caller, note_earlier: Callable[[], None]) -> None:
    producer_id = begin(caller)
    more(caller, producer_id)
    caller.checkpoint()
    note_earlier()
    more(caller, producer_id)
    caller.delete_records(topic_of(caller, "orders")[1][1], 5)
    caller.sync()
    caller.checkpoint()
    more(caller, producer_id)


def compacted(caller: Caller, note_earlier: Callable[[], None]) -> None:
    caller.create("table", **COMPACTED)
    topic, (partition,) = topic_of(caller, "table")
    producer_id = caller.producer_id()
    for number in range(12):
        for key in (b"a", b"b", b"c"):
            value = b"%d" % (number + caller.marks) * 60
            record = Record(key=key, value=value, timestamp_ms=caller.now_ms)
            header = read_header(caller.next_batch(partition, producer_id, 1))
            sender = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": header.base_sequence}
            caller.append(partition, encode_batch([record], **sender))
        caller.sync()
        if number == 5:
            note_earlier()
        if number in (4, 8):
            compact(caller, topic, partition)
            caller.checkpoint()


def compact(caller: Caller, topic: Topic, partition: PartitionLog) -> None:
    found = plan(partition, topic.parsed, caller.now_ms)
    assert found is not None
    done = found.begin(caller.log.files, Bounds(10_000, 10_000), caller.now_ms, lambda: None)
    done.survey()
    for group in done.groups():
        rewritten = done.rewrite(group)
        assert caller.log.swap(partition, rewritten.old, rewritten.new)
    partition.cleaned_until = done.until


LIVES = {"young": young, "old": old, "compacted": compacted}
ENDS = ("clean stop", "killed", "killed, os")


def scenes(root: Path) -> list[Scene]:
    """All of them, below this directory."""
    return [scene(root, age, end) for age in LIVES for end in ENDS if (age, end) != ("compacted", "killed, os")]


def scene(root: Path, age: str, end: str) -> Scene:
    place = root / f"{age} {end}"
    others, _, _ = lived(place / "another", age, end, "another-cluster")
    tree, earlier, judge = lived(place / "log", age, end, "a-cluster")
    return Scene(f"{age}, {end}", place / "log", tree, earlier, others, judge)


def lived(root: Path, age: str, end: str, cluster_id: str) -> tuple[Tree, Tree, Callable[[Log], None]]:
    """What a life leaves, what it had left half-way, and the judge of what comes back."""
    is_os = end == "killed, os"
    settings = replace(SETTINGS, checkpoint_bytes=1 << 20, acknowledges_unsynced=is_os)
    caller = Caller(DiskFiles(root), Ledger(), settings, cluster_id)
    # The records of another broker are others, at the same offsets and of the same size.
    caller.marks = 100 if cluster_id == "a-cluster" else 500
    earlier: Tree = {}
    LIVES[age](caller, lambda: earlier.update(tree_of(root)))
    content = content_of(caller.log)
    ledger = caller.ledger
    if end == "clean stop":
        caller.close()
    else:
        if age != "compacted":
            for _ in range(6):
                send(caller, topic_of(caller, "orders")[1][0], -1, 300, 500)
        caller.log.abandon()
        if is_os:
            # All of them were acknowledged. A kill may tear the last one, so damage to it looks the same.
            ledger.acknowledged = len(ledger.changes) - 1

    def judge(log: Log) -> None:
        if age == "compacted":
            assert content_of(log) == content, "not what was acknowledged"
        else:
            ledger.copy().settle_on(log)

    return tree_of(root), earlier, judge


def started(scene: Scene) -> Log:
    """A start on the directory as it is now. It may begin a new log."""
    return Log.open(DiskFiles(scene.root), new_cluster_id="a-new-cluster", settings=SETTINGS, time_of_day=lambda: 1e9)


def judged(scene: Scene) -> None:
    """A start, which has to bring back everything."""
    log = started(scene)
    with closing(log):
        scene.judge(log)
