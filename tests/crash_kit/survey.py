"""Kills a scenario at every point where it does IO, lets it begin anew, and audits what came of it.

    python -m crash_kit.survey MODULE BOOTSTRAP URL [STEP]

A scenario is a module with three functions, each of which takes a `Place`:

    prepare(place)    makes what has to be there; nobody is killed in it
    work(place)       what is killed; called again it goes on, and returns when all is done
    audit(place)      an AssertionError says what is wrong

and `NAME`. Every life is a fork of this process, which has imported everything and has made neither a thread nor a
client: so a life takes as long as its calls take. It prints one line of JSON, a `Survey`.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType

from crash_kit.crashing import install, points


@dataclass(frozen=True)
class Place:
    """Where a run of a scenario works: its label is no other run's, and is for names of topics, tables and keys."""

    bootstrap: str
    url: str
    label: str


@dataclass
class Survey:
    """What came of all runs of a scenario."""

    scenario: str
    points: int = 0
    killed: int = 0
    # Runs that were over before they came to their point: it hangs on a rival, or on the time of day.
    not_reached: int = 0
    wrong: list[str] = field(default_factory=list)


class _Life:
    """One fork that does something and ends."""

    def __init__(self, do: Callable[[], None], told: Path, deadly: int | None = None, *, counts: bool = False) -> None:
        self._told = told
        self._pid = os.fork()
        if self._pid == 0:
            os._exit(self._live(do, deadly, counts))

    def _live(self, do: Callable[[], None], deadly: int | None, counts: bool) -> int:
        try:
            if counts:
                points.arm(deadly)
            do()
            self._told.write_text(json.dumps(points.passed))
        except BaseException:
            self._told.write_text(traceback.format_exc())
            return 1
        return 0

    def end(self) -> bool:
        """Wait for its end; whether it was killed. A life that failed is an error."""
        _, status = os.waitpid(self._pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return True
        if status != 0:
            raise AssertionError(self._told.read_text() if self._told.exists() else f"ended with status {status}")
        return False


class _Runs:
    """Runs of one scenario, each in a place of its own."""

    def __init__(self, scenario: ModuleType, bootstrap: str, url: str, directory: Path) -> None:
        self._scenario = scenario
        self._bootstrap = bootstrap
        self._url = url
        self._directory = directory
        self._label = f"crash-{secrets.token_hex(4)}"

    def rehearse(self) -> list[str]:
        """All points, in order; and without a crash all is well."""
        place = self._prepared("rehearsal")
        told = self._directory / "points"
        _Life(lambda: self._scenario.work(place), told, counts=True).end()
        self._begin_anew(place)
        points_passed: list[str] = json.loads(told.read_text())
        return points_passed

    def run(self, point: int, *, with_rival: bool) -> bool:
        """One run; whether it was killed at this point."""
        place = self._prepared(f"{'rival' if with_rival else 'alone'}-{point}")
        lives = [self._life(place, "rival")] if with_rival else []
        was_killed = self._life(place, "killed", point).end()
        for life in lives:
            life.end()
        self._begin_anew(place)
        return was_killed

    def _life(self, place: Place, told: str, deadly: int | None = None) -> _Life:
        return _Life(lambda: self._scenario.work(place), self._directory / told, deadly, counts=deadly is not None)

    def _prepared(self, run: str) -> Place:
        place = Place(self._bootstrap, self._url, f"{self._label}-{run}")
        _Life(lambda: self._scenario.prepare(place), self._directory / "prepared").end()
        return place

    def _begin_anew(self, place: Place) -> None:
        def finish() -> None:
            self._scenario.work(place)
            self._scenario.audit(place)

        _Life(finish, self._directory / "finished").end()


def survey(module: str, bootstrap: str, url: str, step: int = 1) -> Iterator[Survey]:
    """Every `step`-th point, alone and then with a rival who does the same work at the same time."""
    scenario = importlib.import_module(module)
    with tempfile.TemporaryDirectory() as directory:
        runs = _Runs(scenario, bootstrap, url, Path(directory))
        try:
            rehearsed = runs.rehearse()
        except AssertionError as wrong:
            yield Survey(scenario.NAME, wrong=[f"without a crash: {wrong}"])
            return
        for with_rival in (False, True):
            found = Survey(scenario.NAME + (", two at once" if with_rival else ""))
            for point, what in list(enumerate(rehearsed))[::step]:
                found.points += 1
                try:
                    was_killed = runs.run(point, with_rival=with_rival)
                except AssertionError as wrong:
                    found.wrong.append(f"{what} ({point}): {wrong}")
                else:
                    found.killed += was_killed
                    found.not_reached += not was_killed
            yield found


def main(module: str, bootstrap: str, url: str, step: str = "1") -> None:
    install()
    for found in survey(module, bootstrap, url, int(step)):
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
