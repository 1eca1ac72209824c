"""Makes a directory consistent again by leaving out what is lost, damaged or contradicts the rest: a start is tried,
and what it stops at is set aside, until it succeeds. Nothing here decides what may be left out: `repair` does.
"""

from collections.abc import Callable

from semel.log.storage.files import Files
from semel.log.storage.journal import Misfit
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.storage.repair import SettingAside


def mend(files: Files, tell: Callable[[str], None], settings: LogSettings | None = None) -> None:
    """Set aside all that a start stops at, and write a checkpoint; `tell` gets a line for each piece. Damaged if
    nothing can be read without what is damaged.
    """
    repair = SettingAside(files, tell)
    while True:
        try:
            Log.open(files, new_cluster_id="", settings=settings, repair=repair).close()
            return
        except Misfit as misfit:
            repair.skip(misfit)
