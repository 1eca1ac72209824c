"""The process that is only a broker: how many files it may open, what it does with freed memory, and how old it is.

What changes the process must never be used in one that belongs to the user.
"""

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import Final

# glibc's numbers for the two settings of mallopt; other C libraries have no mallopt, or ignore it.
_MALLOPT_TRIM_THRESHOLD: Final = -1
_MALLOPT_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 * 1024 * 1024

# macOS names no hard limit, but refuses more than an internal limit, which is at least the last of these.
_OPEN_FILES_TRIED: Final = (262_144, 65_536, 10_240)
# By what /proc names their controllers: the second version of control groups, and the first.
_MEMORY_LIMITS: Final = {"": "memory.max", "memory": "memory.limit_in_bytes"}


def raise_open_files() -> None:
    """Raise the limit of open files as far as the system allows: every connection and every segment in use is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, *(tried for tried in _OPEN_FILES_TRIED if hard == resource.RLIM_INFINITY and tried > soft)):
        if limit == soft:
            return
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return


def keep_freed_memory() -> None:
    """Make the C library keep the freed memory of answers for the next answers.

    By default it returns every freed megabyte to the kernel, which clears the pages and hands them out again one by
    one. That takes two thirds of the broker's time for reads.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MALLOPT_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MALLOPT_MMAP_THRESHOLD, _KEPT_BYTES)


def memory_bytes() -> int:
    """The memory that this process may use: the machine's, or what a container has of it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in _MEMORY_LIMITS:
                limit = Path(f"/sys/fs/cgroup/{controllers}/{group}/{_MEMORY_LIMITS[controllers]}")
                # The second version says "max" where there is no limit.
                with contextlib.suppress(OSError, ValueError):
                    limits.append(int(limit.read_text()))
    return min(limits)


def age_seconds() -> float:
    """How long ago this process began, including the start of the interpreter."""
    try:
        with open("/proc/self/stat", "rb") as file:
            began_ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.process_time()
