"""The real command, in a process of its own, found beside the Python that runs the tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import forked

SEMEL = str(Path(sys.executable).parent / "semel")


def semel(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What `semel` with these words says, and its exit code."""
    return forked.run("semel", *words, stdin=stdin)


def semel_lines(*words: str, stdin: str = "") -> list[str]:
    """The lines of a command that has to succeed."""
    done = semel(*words, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def semel_failure(*words: str, stdin: str = "") -> str:
    """The one line of a command that has to fail."""
    done = semel(*words, stdin=stdin)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("semel: ")
    return done.stderr.removeprefix("semel: ").strip()


@contextmanager
def serving(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The same, ended with the block; it has to end in order if the block does."""
    process = started(*words)
    try:
        yield process
        process.terminate()
        assert process.wait(forked.SECONDS_MAX) == 0
    finally:
        process.kill()
        process.communicate()


def started(*words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A command that is under way, with pipes to all that it hears and says."""
    pipe = subprocess.PIPE
    return subprocess.Popen([SEMEL, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)
