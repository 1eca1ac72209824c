"""`semel salvage`: from whatever is left of a log, as much as can be proven, into a new directory.

The damaged log is only read. What comes out is a directory that a broker can start on, and a report: what it has, and
each piece that is lost. A record comes out if checksums and digests show that its bytes are the acknowledged ones.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from semel.ui.cli.display import counted, printable
from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from semel.log.at_rest import LogSettings
    from semel.log.files import Files

EXAMPLE: Final = """  semel salvage ./data --into ./salvaged
  semel salvage s3://bucket/prefix --into ./salvaged"""
# Everything is verified, however large it is.
_VERIFIED_BYTES_MAX: Final = 1 << 62


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="DIR|URL", help="what is left: a directory, or a store; no broker may use it")
    parser.add_argument("--into", required=True, metavar="DIR", help="a directory that is empty, or not there yet")


def run(options: argparse.Namespace) -> int:
    return _report(options.into, salvage(options.log, options.into))


def salvage(source: str, target: str, settings: "LogSettings | None" = None) -> list[str]:
    """Read what is left of this log into a directory; return a line for each piece that is lost."""
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise Failure(f"{target} is not empty: name another directory")
    lost: list[str] = []
    stopped = None
    try:
        if "://" in source:
            asyncio.run(_out_of_store(source, target, lost))
        else:
            _check_apart(source, target)
            with _kept_from_brokers(source):
                # A copy is of no run of the machine, so only the log itself shows that written entries are gone.
                stopped = _where_a_start_stops(source, settings)
                _copy(source, target, lost)
        _mend(target, lost, settings, _namer(source, target))
    except OSError as error:
        raise Failure(f"{error.filename or target}: {error.strerror or error}") from None
    return lost or ([] if stopped is None else [stopped])


def _check_apart(source: str, target: str) -> None:
    if not os.path.isdir(source):
        raise Failure(f"{source}: there is no such directory")
    paths = [os.path.realpath(path) for path in (source, target)]
    if os.path.commonpath(paths) in paths:
        raise Failure(f"one of {source} and {target} is in the other: name a directory outside")


@contextlib.contextmanager
def _kept_from_brokers(source: str) -> Iterator[None]:
    """No broker may write to the directory meanwhile. Nothing is made in it: a broker leaves the file of its lock."""
    from semel.log.files import DiskFiles

    files = DiskFiles(source)
    try:
        # A log on a read-only file system is copied as well.
        if os.access(source, os.W_OK) and os.path.exists(os.path.join(source, "lock")):
            files.lock()
        yield
    except BlockingIOError:
        raise Failure(f"{source} is in use by a broker: stop it first") from None
    finally:
        files.close()


def _where_a_start_stops(source: str, settings: "LogSettings | None") -> str | None:
    from semel.log.at_rest import LogSettings, examine
    from semel.log.files import ReadOnlyFiles

    return examine(ReadOnlyFiles(source), (settings or LogSettings()).aborted_blocks, as_a_start=True).stopped


def _copy(source: str, target: str, lost: list[str]) -> None:
    """Copy all files that can be read."""
    from semel.log.at_rest import TOPICS

    left_out = shutil.ignore_patterns("lock", "set-aside", "scrub")
    try:
        # The source may be for reading only, and a start writes to these files.
        shutil.copytree(source, target, ignore=left_out, copy_function=shutil.copyfile, dirs_exist_ok=True)
    except shutil.Error as error:
        lost += [f"{name}: {reason}" for name, _, reason in error.args[0]]
    for path in (Path(target), *Path(target).rglob("*")):
        if path.is_dir():
            path.chmod(path.stat().st_mode | stat.S_IRWXU)
    for path in Path(target, TOPICS).rglob("*.log"):
        if path.is_dir():
            lost.append(f"{Path(source, path.relative_to(target))}: a directory, and not a segment")
            shutil.rmtree(path)
    _sync(target)


def _sync(target: str) -> None:
    """Make all copies durable: a checkpoint will name them."""
    from semel.log.files import DiskFiles

    files = DiskFiles(target)
    for directory, _, names in os.walk(target):
        relative = os.path.relpath(directory, target)
        for name in names:
            with contextlib.closing(files.open(f"{relative}/{name}")) as file:
                file.sync()
        files.sync_directory(relative)


async def _out_of_store(url: str, target: str, lost: list[str]) -> None:
    from semel.log.files import DiskFiles
    from semel.log.status import BrokenHistory
    from semel.log.store_logs import salvage_from_store
    from semel.log.stores import StoreError, open_store

    store = open_store(url)
    try:
        await salvage_from_store(store, DiskFiles(target), lost.append)
    except (StoreError, BrokenHistory) as error:
        raise Failure(f"nothing can be proven: {error}") from None
    finally:
        await store.close()


def _namer(source: str, target: str) -> Callable[[str], str]:
    """A function that has a line about the copy of a file name the file itself: that is where a person looks. Out of a
    store come other files than it has.
    """
    if "://" in source:
        return str
    copied = re.compile(re.escape(str(Path(target))) + "(?=[/:])")
    return lambda line: str(Path(source)) + line[found.end() :] if (found := copied.match(line)) else line


def _mend(target: str, lost: list[str], settings: "LogSettings | None", named: Callable[[str], str]) -> None:
    from semel.log.at_rest import Cached, Damaged, LogSettings, mend
    from semel.log.files import DiskFiles

    try:
        settings = replace(settings or LogSettings(), verified_bytes_max=_VERIFIED_BYTES_MAX)
        mend(DiskFiles(target), lambda line: lost.append(named(line)), settings)
    except Cached as error:
        raise Failure(f"{named(str(error))}: salvage the store itself, by its URL") from None
    except Damaged as damage:
        raise Failure(f"{named(str(damage))}; without it nothing can be proven: restore a backup") from None


def _report(target: str, lost: list[str]) -> int:
    from semel.log.at_rest import examine
    from semel.log.files import ReadOnlyFiles
    from semel.ui.cli.dump_state import show_groups, show_producers, show_topics

    files: Files = ReadOnlyFiles(target)
    examined = examine(files, as_a_start=True)
    show_topics(examined)
    show_producers(examined)
    show_groups(examined)
    print()
    for line in lost:
        print(f"LOST  {printable(line)}")
    what = counted(len(lost), "piece") if lost else "nothing"
    print(f"{target} has all that can be proven, {what} is lost; start a broker with --data {target}")
    return 1 if lost else 0
