"""The real command, in a process of its own, found beside the Python that runs the tests."""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from semel import cli

SEMEL = str(Path(sys.executable).parent / "semel")
SECONDS_MAX = 250
# A command is forked from a process that has loaded all of them: to start Python and load one takes most of its time.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [module.name for module in pkgutil.iter_modules(cli.__path__, "semel.cli.")]
    + ["semel.audit.run", "semel.database.engines", "sqlalchemy.dialects.sqlite", "pyarrow.compute"]
)


def semel(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What `semel` with these words says, and its exit code."""
    with TemporaryDirectory() as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(stdin)
        process = FORKS.Process(target=run_forked, args=(words, streams, Path.cwd(), dict(os.environ)))
        process.start()
        process.join(SECONDS_MAX)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"semel {' '.join(words)} did not end")
        outputs = [stream.read_text() if stream.exists() else "" for stream in streams[1:]]
        return subprocess.CompletedProcess([SEMEL, *words], process.exitcode, *outputs)


def run_forked(words: Sequence[str], streams: Sequence[Path], place: Path, environment: Mapping[str, str]) -> None:
    """Run the command in this process, as if it had been started with these three streams."""
    for number, (stream, mode) in enumerate(zip(streams, "rww", strict=True)):
        with stream.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [SEMEL, *words]
    cli.main()


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
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.communicate()


def started(*words: str) -> subprocess.Popen[str]:
    """A command that is under way, with pipes to all that it hears and says."""
    pipe = subprocess.PIPE
    return subprocess.Popen([SEMEL, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
