"""What a program has left behind: processes that were told of its directory, and are there although it has ended.

It must never end any of them: to leave none is what the program promises.
"""

from pathlib import Path


def processes_about(place: Path) -> list[str]:
    """The command lines of all processes that name the place."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(place) in line:
            found.append(line)
    return found
