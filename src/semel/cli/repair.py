"""`semel repair`: for a broker that does not start because intact entries in its directory contradict each other.

Without an option it only reads, and says where the start of a broker would stop. It names each piece that it sets
aside, and keeps a copy of it; then it tries the entries after it, and may set these aside as well. It does not repair
damaged bytes: only a backup helps then.
"""

import argparse
import os
from typing import Final

from semel.cli.errors import Failure

EXAMPLE: Final = """  semel repair ./data
  semel repair ./data --set-aside"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="the directory; no broker may be running on it")
    parser.add_argument(
        "--set-aside",
        action="store_true",
        help="leave out what a start stops at: name it, keep a copy in DATA/set-aside, and write a new checkpoint",
    )


def run(options: argparse.Namespace) -> int:
    if not os.path.exists(os.path.join(options.data, "checkpoint")):
        raise Failure(f"{options.data}: no broker has kept a log there")
    try:
        return _set_aside(options.data) if options.set_aside else _look(options.data)
    except BlockingIOError:
        raise Failure(f"{options.data} is in use by a broker") from None
    except OSError as error:
        raise Failure(f"{error.filename or options.data}: {error.strerror or error}") from None


def _look(data: str) -> int:
    from semel.storage.examination import examine
    from semel.storage.files import ReadOnlyFiles

    stopped = examine(ReadOnlyFiles(data)).stopped
    if stopped is None:
        print("no entry stops a start")
        return 0
    print(f"a start would stop at {stopped}")
    return 1


def _set_aside(data: str) -> int:
    from semel.storage.files import DiskFiles
    from semel.storage.journal import Damaged, Misfit
    from semel.storage.log import Log
    from semel.storage.repair import SettingAside

    files = DiskFiles(data)
    repair = SettingAside(files, lambda line: print(f"set aside: {line}"))
    while True:
        try:
            Log.open(files, new_cluster_id="", repair=repair).close()
        except Misfit as misfit:
            repair.skip(misfit)
        except Damaged as damage:
            raise Failure(f"{damage}; this cannot be set aside: restore a backup") from None
        else:
            print("the directory is consistent again: a broker may start on it")
            return 0
