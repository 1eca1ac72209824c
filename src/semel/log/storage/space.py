"""The space of a disk. Nothing here may reserve or free any."""

import os
from pathlib import Path
from typing import NamedTuple


class Space(NamedTuple):
    """How much of a disk this process may still use, and its size."""

    free_bytes: int
    bytes: int


def space_at(directory: Path | str) -> Space | None:
    """The space of the disk with this directory; None if the system does not tell."""
    try:
        about = os.statvfs(directory)
    except OSError:
        return None
    return Space(about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize)
