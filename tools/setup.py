"""Makes `.venv`: semel itself, editable, and everything that its tests and its demo need, in the locked versions.

Run by `make setup` with any Python 3.11 to 3.14, from the root of the repository; it needs nothing but the standard
library. It may be interrupted and run again at any point: the stamp that says "complete" is written last. It must never
install anything that `locks/dev.txt` does not name with a hash.
"""

import os
import re
import selectors
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ENVIRONMENT = Path(".venv")
LOCK = Path("locks/dev.txt")
STAMP = ENVIRONMENT / "set-up"
REPORT = ENVIRONMENT / "set-up.log"
BAR_WIDTH = 24
TICK_SECONDS = 1
QUIET_SECONDS_MAX = 10
BUILDERS = ENVIRONMENT / "builders.txt"
# What builds those packages that come as their source; it has to be there before they are.
BUILDER = re.compile(r"^(?:setuptools|wheel|packaging)==.*(?:\n .*)*", re.MULTILINE)
# pip names every package once with one of these, whether it fetches it or finds it in place.
PACKAGE_SEEN = re.compile(rb"^(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)", re.MULTILINE)
UNPACKING = re.compile(rb"^Installing collected packages", re.MULTILINE)
ERROR = re.compile(rb"^ERROR:(.*)", re.MULTILINE)


class Progress:
    """One line that moves on a terminal; elsewhere a line at the start of each part, and one every ten seconds."""

    def __init__(self) -> None:
        self._moving = sys.stdout.isatty()
        self._started = self._told = time.monotonic()
        self._part = ""

    def show(self, part: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._moving:
            filled = BAR_WIDTH * done // total
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            seconds = f"{now - self._started:.0f} s"
            print(f"\r\033[Ksemel: [{bar}] {part} ({done} of {total}), {seconds}", end="", flush=True)
        elif part != self._part:
            print(f"semel: {part} ({total})", flush=True)
            self._told = now
        elif now - self._told >= QUIET_SECONDS_MAX:
            print(f"semel: {part}: {done} of {total} after {now - self._started:.0f} s", flush=True)
            self._told = now
        self._part = part

    def finish(self) -> None:
        clear = "\r\033[K" if self._moving else ""
        print(f"{clear}semel: .venv is ready after {time.monotonic() - self._started:.0f} s", flush=True)


def fail(message: str) -> None:
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(clear, end="", flush=True)
    sys.exit(f"semel: {message}")


def works() -> bool:
    """Whether `.venv` holds a Python of a version we support, with pip, and of the one that somebody named, if somebody
    did. Any other is replaced."""
    wanted = f"== {sys.version_info[:2]}" if os.environ.get("PYTHON") else "in ((3, 11), (3, 12), (3, 13), (3, 14))"
    check = f"import sys, pip; sys.exit(not sys.version_info[:2] {wanted})"
    try:
        return subprocess.run([ENVIRONMENT / "bin/python", "-c", check], capture_output=True).returncode == 0
    except OSError:
        return False


def run_pip(progress: Progress, part: str, total: int, *arguments: str) -> None:
    """Run pip; what it says goes to the report, and only how far it is to the screen."""
    command = [str(ENVIRONMENT / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    progress.show(part, 0, total)
    process = subprocess.Popen(
        [*command, "--progress-bar=off", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    said = b""
    with REPORT.open("ab") as report:
        for piece in pieces_of(process):
            report.write(piece)
            said += piece
            if UNPACKING.search(said) and total > 1:
                unpacked = len(list(ENVIRONMENT.glob("lib/python*/site-packages/*.dist-info")))
                progress.show("unpacking packages", min(unpacked, total), total)
            else:
                progress.show(part, min(len(set(PACKAGE_SEEN.findall(said))), total), total)
    if process.wait() != 0:
        reasons = ERROR.findall(said) or [b"no reason given"]
        fail(f"pip could not do it: {reasons[-1].decode(errors='replace').strip()} (all it said: {REPORT})")


def pieces_of(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """The output of the process, in pieces as they come; an empty one in each silent second."""
    assert process.stdout is not None
    with process.stdout as stream, selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(TICK_SECONDS):
                yield b""
            elif piece := os.read(stream.fileno(), 1 << 16):
                yield piece
            else:
                return


def name_sources_relatively(environment: Path = ENVIRONMENT) -> None:
    """Name `src` by its way from the file that Python reads at each start. By its whole path, Python 3.11 and 3.12 do
    not start where the language has ASCII alone (LC_ALL=POSIX) and a directory above has another character."""
    [named] = environment.glob("lib/python*/site-packages/*semel*.pth")
    named.write_text(f"{os.path.relpath('src', named.parent)}\n", encoding="ascii")


def main() -> None:
    print(
        "semel: .venv is for the demo, the tests and work on semel; to use semel, pip install '.[app]' is enough",
        flush=True,
    )
    progress = Progress()
    if not works():
        progress.show(f"making .venv with Python {sys.version.split()[0]}, then a minute or two of packages", 0, 1)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
    STAMP.unlink(missing_ok=True)
    REPORT.write_text("")
    lock = LOCK.read_text()
    builders = BUILDER.findall(lock)
    BUILDERS.write_text("\n".join(builders))
    hashed = ["--require-hashes", "--no-build-isolation", "--requirement"]
    run_pip(progress, "fetching what builds packages", len(builders), *hashed, str(BUILDERS))
    total = len(re.findall(r"^[a-z].*==", lock, re.MULTILINE))
    run_pip(progress, "fetching packages", total, *hashed, str(LOCK))
    run_pip(progress, "installing semel", 1, "--no-deps", "--no-build-isolation", "--editable", ".")
    name_sources_relatively()
    STAMP.write_bytes(os.fsencode(f"{Path.cwd()}\n"))
    progress.finish()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        fail("interrupted; the next `make setup` goes on from here")
    except (OSError, subprocess.CalledProcessError) as error:
        fail(str(error))
