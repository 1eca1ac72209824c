"""One run of some tests in a forked process: with a bug planted, or without one, to see that they pass then.

The process tells its parent through a pipe which test begins and which has failed, and ends at the first failure. It
has a process group and a scratch directory of its own, and its parent ends the group as soon as it knows enough. This
must never fork a process that has threads of Python, nor one that has imported semel: whoever copied a name from a
module would go on without the bug.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import pytest
from hypothesis import Phase, settings

from saboteurs.pieces import NotPlanted
from saboteurs.planting import Bug, import_sabotaged

# Those that the tests know of. To look for others takes longer than most tests.
_PLUGINS: Final = ("_hypothesis_pytestplugin", "semel.testing.plugin", "xdist.plugin")
_OPTIONS: Final = (
    *("-q", "-p", "no:cacheprovider", "--disable-plugin-autoload", "--continue-on-collection-errors", "-m", ""),
    # Libraries are there before pytest, and the time is kept by the parent, not by a plugin of pytest.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-W", "ignore::pytest.PytestUnknownMarkWarning", "-W", "ignore::pytest.PytestConfigWarning"),
)
_OUTPUT_CHARACTERS_MAX: Final = 6000
# For what has no bug to hang over, or no small part of it: as long as any test may take on a busy machine.
_SECONDS_MAX: Final = 300.0
_PR_SET_PDEATHSIG: Final = 1
NOT_PLANTED: Final = "not planted"


class Trial(NamedTuple):
    """Which tests are run, with which bug in semel."""

    arguments: Sequence[str]
    bug: Bug | None = None
    chosen: frozenset[str] = frozenset()
    """Of the tests that the arguments name these alone; all of them if there are none here."""

    @property
    def starts_spark(self) -> bool:
        return any(word.startswith("tests/spark/") for word in self.arguments)

    @property
    def seconds_max(self) -> float:
        """How long a test may take before it counts as failed. A Spark that starts slowly has caught nothing."""
        return _SECONDS_MAX if self.bug is None or self.starts_spark else self.bug.seconds_max


class Ending(NamedTuple):
    """What came of a trial."""

    trial: Trial
    told: Sequence[dict[str, Any]]
    """What the process has told, the last thing last."""
    seconds: float
    cpu_seconds: float
    is_overdue: bool
    output: str


class Process:
    """A trial under way, as its parent sees it."""

    def __init__(self, trial: Trial, scratch: Path) -> None:
        self.trial = trial
        self._folder = Path(tempfile.mkdtemp(dir=scratch))
        self._told: list[dict[str, Any]] = []
        self._rest = b""
        self._has_ended = False
        self._began = self._heard = time.monotonic()
        self.pipe, theirs = os.pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            os.close(self.pipe)
            _be_child(trial, self._folder, theirs)
        os.close(theirs)

    @property
    def seconds_left(self) -> float:
        """How long the test at hand may still take, or the start before the first one."""
        seconds_max = self.trial.seconds_max if self._told else _SECONDS_MAX
        return self._heard + seconds_max - time.monotonic()

    def hear(self) -> bool:
        """Take what was told; whether there will be no more of it."""
        got = os.read(self.pipe, 1 << 16)
        self._heard = time.monotonic()
        *lines, self._rest = (self._rest + got).split(b"\n")
        self._told += map(json.loads, lines)
        self._has_ended = not got or (bool(self._told) and "end" in self._told[-1])
        return self._has_ended

    def end(self) -> Ending:
        """Kill it, if it is still there, and whatever it has started."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:  # not yet a group
            os.kill(self._pid, signal.SIGKILL)
        _, _, usage = os.wait4(self._pid, 0)
        os.close(self.pipe)
        output = self._folder / "output"
        text = output.read_text(errors="replace") if output.exists() else ""
        shutil.rmtree(self._folder, ignore_errors=True)
        return Ending(
            self.trial,
            self._told,
            time.monotonic() - self._began,
            usage.ru_utime + usage.ru_stime,
            not self._has_ended and self.seconds_left <= 0,
            text[-_OUTPUT_CHARACTERS_MAX:],
        )


# -- in the child ----------------------------------------------------------------------------------------------------


def _be_child(trial: Trial, folder: Path, pipe: int) -> NoReturn:
    """Run the trial, and end without what a process does at its end: nobody needs it any more."""

    def tell(fact: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(fact).encode() + b"\n")

    try:
        _live_apart(folder, pipe)
        if trial.bug is not None:
            import_sabotaged(trial.bug)
        tell({"end": int(_run_tests(trial, folder, tell))})
    except NotPlanted as error:
        tell({"end": NOT_PLANTED, "why": str(error)})
    except BaseException:
        _write(folder, traceback.format_exc())
    finally:
        os._exit(0)


def _live_apart(folder: Path, pipe: int) -> None:
    """Have nothing in common with the parent but the pipe, and do not outlive it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(ours, standard)
    temporary = folder / "temporary"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


def _run_tests(trial: Trial, folder: Path, tell: Callable[[dict[str, Any]], None]) -> int:
    plugins = [word for name in _PLUGINS for word in ("-p", name)]
    # What a test says of a bug is shown to nobody: to look up its source would take as long as most tests.
    brevity = [] if trial.bug is None else ["--tb=no"]
    options = [*_OPTIONS, *plugins, *brevity, f"--basetemp={folder / 'tests'}"]
    code = pytest.main([*options, *trial.arguments], plugins=[_Teller(trial, folder, tell)])
    # The process ends without the usual ceremony.
    sys.stdout.flush()
    return code


def _write(folder: Path, text: str) -> None:
    """Add to the output, wherever pytest sends at the moment what is printed."""
    with (folder / "output").open("a") as output:
        output.write(text + "\n")


class _Teller:
    """The pytest plugin that tells the parent what happens; with a bug planted, the first failure is all it needs."""

    def __init__(self, trial: Trial, folder: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        self._trial = trial
        self._folder = folder
        self._tell = tell

    def pytest_sessionstart(self) -> None:
        # Any example that fails will do, and nobody reads the smallest one, nor is it there for the trial after this
        # one. The tests' own profile is loaded by now.
        settings.register_profile("trial", settings(), phases=[Phase.explicit, Phase.generate], database=None)
        settings.load_profile("trial")

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.File):
            self._tell({"begin": collector.nodeid})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid, str(report.longrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not self._trial.chosen:
            return
        # What a test is called may depend on the bug, where its parameters are made up by a rehearsal.
        names = {item.nodeid for item in items}
        functions = {name.partition("[")[0] for name in self._trial.chosen - names}
        ours = [i for i in items if i.nodeid in self._trial.chosen or i.nodeid.partition("[")[0] in functions]
        config.hook.pytest_deselected(items=[item for item in items if item not in ours])
        items[:] = ours

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell({"begin": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)
        elif report.when == "call" and report.passed:
            self._tell({"passed": report.nodeid})

    def _fail(self, nodeid: str, why: str) -> None:
        self._tell({"failed": nodeid})
        if self._trial.bug is None:
            return
        _write(self._folder, why)
        self._tell({"end": int(pytest.ExitCode.TESTS_FAILED)})
        os._exit(0)
