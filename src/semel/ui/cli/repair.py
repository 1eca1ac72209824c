"""`semel repair`: for a broker that does not start because data is lost, damaged, or contradicts the rest.

Without an option it only reads, and says where the start of a broker would stop. With `--set-aside` it goes on without
what stops a start: it names each piece, and keeps a copy of what is left of it. It brings nothing back, so an operator
who has the missing file or a backup uses that instead. It also shows and removes what starts have put aside.
"""

import argparse
import os
from typing import TYPE_CHECKING, Final

from semel.log.files import aside
from semel.ui.cli.display import counted, printable
from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from semel.log.files import Files

EXAMPLE: Final = """  semel repair ./data
  semel repair ./data --set-aside
  semel repair ./data --remove-set-aside"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="the directory; no broker may be running on it")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--set-aside",
        action="store_true",
        help="go on without what a start stops at: name it, keep a copy in DATA/set-aside, and write a new checkpoint",
    )
    what.add_argument(
        "--remove-set-aside",
        action="store_true",
        help="remove all files in DATA/set-aside, which nothing in the log needs",
    )


def run(options: argparse.Namespace) -> int:
    names = os.listdir(options.data) if os.path.isdir(options.data) else []
    store = _store_of_cache(options.data, names)
    if store is not None:
        raise Failure(
            f"{options.data} is only a cache of the log in {printable(store)}: what is damaged in it is fetched again, "
            "and it may be deleted while no broker runs on it; "
            f"semel dump {printable(store)} --journal --segments examines the log"
        )
    if not {"checkpoint", "journal-end"} & set(names):
        raise Failure(f"{options.data}: no broker has kept a log there")
    try:
        if options.remove_set_aside:
            return _remove_set_aside(options.data)
        return _set_aside(options.data) if options.set_aside else _look(options.data)
    except BlockingIOError:
        raise Failure(f"{options.data} is in use by a broker: stop it first") from None
    except OSError as error:
        raise Failure(f"{error.filename or options.data}: {error.strerror or error}") from None


def _store_of_cache(data: str, names: list[str]) -> str | None:
    """The store that this directory is the cache of; None if it is none."""
    from semel.log.at_rest import cache
    from semel.log.files import ReadOnlyFiles

    return cache.store_of(ReadOnlyFiles(data)) if cache.MARK in names else None


def _look(data: str) -> int:
    from semel.log.at_rest import examine
    from semel.log.files import ReadOnlyFiles

    files = ReadOnlyFiles(data)
    examined = examine(files, as_a_start=True)
    count, size = _put_aside(files)
    if count:
        print(f"{data}/{aside.DIRECTORY} has {counted(count, 'file')} ({size} bytes); --remove-set-aside removes them")
    if examined.stopped is None:
        print("nothing stops a start")
        return 0
    way_on = "nothing can be read without this: bring it back, or restore a backup"
    if examined.can_be_set_aside:
        way_on = f"bring it back, or go on without it: semel repair {data} --set-aside"
    print(f"a start would stop at {examined.stopped}; {way_on}")
    return 1


def _put_aside(files: "Files") -> tuple[int, int]:
    """How many files are set aside, and how many bytes they have."""
    sizes = [file.size for file in aside.kept(files)]
    return len(sizes), sum(sizes)


def _remove_set_aside(data: str) -> int:
    from semel.log.files import DiskFiles

    files = DiskFiles(data)
    files.lock()
    try:
        count, size = _put_aside(files)
        aside.remove(files, list(aside.kept(files)))
    finally:
        files.close()
    print(f"removed {counted(count, 'file')} ({size} bytes)")
    return 0


def _set_aside(data: str) -> int:
    from semel.log.at_rest import Damaged, mend
    from semel.log.files import DiskFiles

    try:
        mend(DiskFiles(data), lambda line: print(f"set aside: {line}"))
    except Damaged as damage:
        raise Failure(f"{damage}; nothing can be read without this: bring it back, or restore a backup") from None
    print("the directory is consistent again: a broker may start on it")
    return 0
