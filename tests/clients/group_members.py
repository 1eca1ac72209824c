"""Members of a group as programs have them: each polls in a thread of its own, all the time, and shows what it has. A
member is used by its own thread and no other; whoever wants something of it hands a function over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from client_contract import WAIT_SECONDS_MAX, Member, Place, Stored

T = TypeVar("T")

POLL_SECONDS = 0.05


class RunningMember:
    """Leaving the `with` block closes the member, in its own thread."""

    def __init__(self, make: Callable[[], Member]) -> None:
        self.assignment: frozenset[Place] = frozenset()
        self.assignments: list[frozenset[Place]] = []
        """Every assignment that it was seen with, in order, without repetitions."""
        self.read: list[Stored] = []
        self._wishes: queue.SimpleQueue[tuple[Callable[[Member], Any], Future[Any]]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._made: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, args=(make,), daemon=True)
        self._thread.start()
        self._made.result(WAIT_SECONDS_MAX)

    def ask(self, wish: Callable[[Member], T]) -> T:
        """What the function answers that the member's thread calls."""
        answer: Future[T] = Future()
        self._wishes.put((wish, answer))
        return answer.result(WAIT_SECONDS_MAX)

    def close(self) -> None:
        self._stopping.set()
        self._ended.result(2 * WAIT_SECONDS_MAX)

    def __enter__(self) -> RunningMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self, make: Callable[[], Member]) -> None:
        try:
            member = make()
        except BaseException as failure:
            self._made.set_exception(failure)
            return
        self._made.set_result(None)
        try:
            while not self._stopping.is_set():
                self.read += member.poll(POLL_SECONDS)
                self._note(frozenset(member.assignment()))
                while not self._wishes.empty():
                    wish, answer = self._wishes.get()
                    try:
                        answer.set_result(wish(member))
                    except Exception as failure:
                        answer.set_exception(failure)
            member.close()
        except BaseException as failure:
            self._ended.set_exception(failure)
            # Or its threads would try to reach the broker for as long as this process runs.
            with suppress(Exception):
                member.close()
        else:
            self._ended.set_result(None)

    def _note(self, assignment: frozenset[Place]) -> None:
        if assignment != self.assignment:
            self.assignment = assignment
            self.assignments.append(assignment)


def shared_evenly(members: Iterable[RunningMember], places: Iterable[Place]) -> bool:
    """Whether each partition has one member, and no member two more than another."""
    shares = [member.assignment for member in members]
    sizes = [len(share) for share in shares]
    everything = frozenset(places)
    return frozenset().union(*shares) == everything and sum(sizes) == len(everything) and max(sizes) - min(sizes) <= 1
