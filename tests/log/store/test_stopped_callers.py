"""A process that stops in the middle of a call, for ever or for a while, holds nobody up, and overwrites nothing later.

It stops before each of its system calls in turn, so every place where a real one could stop is tried.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from stopping_caller import serve

from eventually import SECONDS_MAX
from semel.log.store.contract import Changed, Missing
from semel.log.store.directory import DirectoryStore

KEY = "lease"
# In place of a number: before the system call that changes the object.
LANDING = 0
# Before so many system calls a replace and a delete stop at least.
STOPS_MIN = 8


class Caller:
    """A process that serves calls as `stopping_caller.py` does."""

    def __init__(self, directory: Path) -> None:
        calls, self._calls = os.pipe()
        self._outcomes, outcomes = os.pipe()
        with warnings.catch_warnings():
            # From Python 3.12 on: of threads that hold locks. This child needs none of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            # A fork, so that a bug that is planted in this process is in that one as well.
            self._process = os.fork()
        if self._process == 0:
            try:
                os.close(self._calls)
                serve(directory, os.fdopen(calls), os.fdopen(outcomes, "w"))
            finally:
                os._exit(1)
        os.close(calls)
        os.close(outcomes)

    def begin(self, number: int, *call: str) -> bool:
        """Begin a call; whether it has stopped in the middle, before its system call of this number."""
        os.write(self._calls, (" ".join((str(number), *call)) + "\n").encode())
        self._until_stopped()
        return not self._has_ended

    def go_on(self) -> str:
        """How the call ended that was begun."""
        if not self._has_ended:
            os.kill(self._process, signal.SIGCONT)
            self._until_stopped()
        outcome = os.read(self._outcomes, 100).decode().strip()
        os.kill(self._process, signal.SIGCONT)
        return outcome

    @property
    def _has_ended(self) -> bool:
        return bool(select.select([self._outcomes], [], [], 0)[0])

    def _until_stopped(self) -> None:
        _, status = os.waitpid(self._process, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended with {status}"

    def kill(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        self._process = 0

    def end(self) -> None:
        if self._process:
            self.kill()
        os.close(self._calls)
        os.close(self._outcomes)


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    caller = Caller(tmp_path)
    yield caller
    caller.end()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """One thread, for calls that must end although another process has stopped."""
    pool = ThreadPoolExecutor(1)
    yield pool
    pool.shutdown(wait=False)


def test_a_replace_that_stops_anywhere_holds_up_no_other_and_overwrites_nothing(
    tmp_path: Path, caller: Caller, threads: ThreadPoolExecutor
) -> None:
    store = DirectoryStore(tmp_path)
    for number in count(1):
        key = f"{KEY}-{number}"
        version = store.create(key, b"before")
        if not caller.begin(number, "replace", key, "late", version):
            assert caller.go_on() == "done"
            assert store.get(key).body == b"late"
            break
        was_in_time = store.get(key).body == b"late"
        found = store.get(key)
        threads.submit(store.replace, key, b"other", found.version).result(SECONDS_MAX)
        assert store.get(key).body == b"other"
        assert caller.go_on() == ("done" if was_in_time else "Changed")
        assert store.get(key).body == b"other"
    assert number > STOPS_MIN


def test_a_replace_that_stops_anywhere_brings_no_deleted_object_back(
    tmp_path: Path, caller: Caller, threads: ThreadPoolExecutor
) -> None:
    store = DirectoryStore(tmp_path)
    for number in count(1):
        key = f"{KEY}-{number}"
        version = store.create(key, b"before")
        if not caller.begin(number, "replace", key, "late", version):
            assert caller.go_on() == "done"
            break
        was_in_time = store.get(key).body == b"late"
        threads.submit(store.delete, key).result(SECONDS_MAX)
        if number % 2:
            store.create(key, b"anew")
        expected = "Changed" if number % 2 else "Missing"
        assert caller.go_on() == ("done" if was_in_time else expected)
        if number % 2:
            assert store.get(key).body == b"anew"
        else:
            with pytest.raises(Missing):
                store.get(key)
    assert number > STOPS_MIN


def test_a_delete_that_stops_anywhere_holds_up_no_other_and_no_replace_is_undone_by_it(
    tmp_path: Path, caller: Caller, threads: ThreadPoolExecutor
) -> None:
    """Its delete may still come when it goes on: nobody has heard that it had ended. But then the object is gone."""
    store = DirectoryStore(tmp_path)
    for number in count(1):
        key = f"{KEY}-{number}"
        version = store.create(key, b"before")
        if not caller.begin(number, "delete", key):
            assert caller.go_on() == "done"
            break
        try:
            threads.submit(store.replace, key, b"other", version).result(SECONDS_MAX)
        except Missing:
            # It was deleted before that.
            store.create(key, b"anew")
            assert caller.go_on() == "done"
            assert store.get(key).body == b"anew"
        else:
            assert caller.go_on() == "done"
            with pytest.raises(Missing):
                store.get(key)
    assert number > STOPS_MIN


def test_of_two_that_have_stopped_in_one_turn_after_the_other_neither_overwrites(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    """Each was the holder of the turn, and each of them goes on after a third has replaced the object."""
    store = DirectoryStore(tmp_path)
    callers = [Caller(tmp_path), Caller(tmp_path)]
    try:
        for number in range(1, 40):
            key = f"{KEY}-{number}"
            version = store.create(key, b"before")
            stopped = [caller.begin(number, "replace", key, f"late{n}", version) for n, caller in enumerate(callers)]
            before = store.get(key)
            threads.submit(store.replace, key, b"third", before.version).result(SECONDS_MAX)
            outcomes = [caller.go_on() for caller in callers]
            assert store.get(key).body == b"third"
            assert outcomes.count("done") == (before.body != b"before")
            assert set(outcomes) <= {"done", "Changed"}
            if not any(stopped):
                break
    finally:
        for caller in callers:
            caller.end()


def test_a_delete_that_lost_its_turn_leaves_nothing_for_a_replace_to_bring_back(tmp_path: Path) -> None:
    """The replace has taken the turn away from the delete and has compared. Then the delete goes on, and ends."""
    store = DirectoryStore(tmp_path)
    deleting, replacing = Caller(tmp_path), Caller(tmp_path)
    try:
        version = store.create(KEY, b"before")
        assert deleting.begin(LANDING, "delete", KEY)
        assert replacing.begin(LANDING, "replace", KEY, "late", version)
        assert store.get(KEY).body == b"before"
        assert deleting.go_on() == "done"
        assert replacing.go_on() == "Missing"
        with pytest.raises(Missing):
            store.get(KEY)
    finally:
        deleting.end()
        replacing.end()


def test_callers_that_lose_their_turns_leave_nothing_behind(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    store = DirectoryStore(tmp_path)
    others = [DirectoryStore(tmp_path) for _ in range(4)]
    version = store.create(KEY, b"0")
    with ThreadPoolExecutor(len(others)) as pool:
        for number in range(50):
            body = b"%d" % number

            def replace(other: DirectoryStore, body: bytes = body, version: str = version) -> str | None:
                with contextlib.suppress(Changed):
                    return other.replace(KEY, body + b" of %d" % others.index(other), version)
                return None

            (version,) = [outcome for outcome in pool.map(replace, others) if outcome is not None]
            assert store.get(KEY).version == version
    store.delete(KEY)
    assert [list((tmp_path / name).iterdir()) for name in (".new", ".turns")] == [[], []]


def test_the_turn_of_a_process_that_was_killed_is_taken_away(tmp_path: Path, caller: Caller) -> None:
    store = DirectoryStore(tmp_path)
    turns = tmp_path / ".turns"
    for number in count(1):
        key = f"{KEY}-{number}"
        version = store.create(key, b"before")
        assert caller.begin(number, "replace", key, "late", version), "it never had a turn"
        if any(turns.iterdir()):
            break
        assert caller.go_on() == "done"
    caller.kill()
    store.replace(key, b"other", version)
    assert store.get(key).body == b"other"
    assert not any(turns.iterdir())
