"""The sink into the log as a small model: every interleaving of drivers, attempts, zombies and a broker, explored.

The rules are the real ones, `semel.spark.lanes.protocol`; the world around them is the least that can go wrong. A task
that dies is one that never takes another step, and a zombie is one that does. A `Weakening` takes one stone out of the
protocol: each has to lead to a row that is lost or doubled, or the model would prove nothing.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from semel.spark.claims import NOTHING
from semel.spark.lanes.protocol import Digest, Duplicate, LaneClaim, Marker, Refusal, advance, check, decide

SINK = "model"
BATCHES = 2


class Weakening(Enum):
    """What the protocol would be without one of its parts."""

    MARKER_READ_BEFORE_INIT = "the marker is read before the fence is up"
    NO_MARKER = "there is no marker"
    ID_PER_ATTEMPT = "each attempt has a transactional id of its own"
    DIGEST_IGNORED = "a duplicate is believed without comparing digests"
    LANES_NOT_PINNED = "the number of lanes is not pinned"
    MARKER_APART = "the marker has a commit of its own, after that of the rows"
    UNKNOWN_IS_DONE = "a commit without an answer is taken for done"
    CLAIM_NOT_READ_BELOW = "nobody looks below the claim before the commit"


class Plan(NamedTuple):
    """What a driver computes: into how many lanes, for which query, and whether offsets were planned anew."""

    lanes: int = 1
    query: str = "q"
    anew: bool = False

    def rows(self, batch: int) -> frozenset[int]:
        """Two rows for each batch; one more where it was planned anew, because more had come meanwhile."""
        first = 10 * batch
        return frozenset((first, first + 1, first + 2) if self.anew else (first, first + 1))

    def rows_of(self, batch: int, lane: int) -> frozenset[int]:
        return frozenset(row for row in self.rows(batch) if row % self.lanes == lane)


class Setting(NamedTuple):
    """How far a world may go wrong. A driver that crashes comes back with the next of the plans, or with the same."""

    plans: tuple[Plan, ...] = (Plan(),)
    # How many attempts there are in all, for all batches and lanes.
    attempts_max: int = 4
    crashes_max: int = 2
    weakening: Weakening | None = None
    # A broker that does not lead any more, and does not know it, may show the marker before the last one.
    has_former_leader: bool = False
    # Where the checkpoint goes back to when the driver crashes: nowhere, to its beginning.
    loses_checkpoint: bool = False


class Lane(NamedTuple):
    """What the broker knows of a lane: the newest epoch, the rows and the marker of an open transaction, the marker."""

    epoch: int = 0
    open: tuple[frozenset[int], Marker] | None = None
    marker: Marker | None = None
    marker_before: Marker | None = None


class Step(IntEnum):
    BEGUN = 0
    FENCED = 1
    DECIDED = 2
    PRODUCED = 3
    HALF_DONE = 4


class Attempt(NamedTuple):
    """A task under way. Nobody waits for it any more if its driver is gone, or its batch was done by another."""

    plan: Plan
    batch: int
    lane: int
    is_awaited: bool = True
    step: Step = Step.BEGUN
    epoch: int = 0
    read: Marker | None = None


class World(NamedTuple):
    """One state. The driver waits for the lanes of its batch that are not `done`."""

    lanes: tuple[Lane, ...]
    written: tuple[int, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    pinned: int | None = None
    crashes: int = 0
    begun: int = 0
    plan: int = 0
    batch: int = 0
    done: frozenset[int] = frozenset()
    is_refused: bool = False
    violation: str | None = None


Moves = Iterator[tuple[str, World]]


@dataclass
class Explored:
    """What came of it: how many states, how many of them refused or complete, and the shortest way to a violation."""

    states: int
    refused: int
    complete: int
    stuck: list[list[str]]
    counterexample: list[str] | None


def explore(setting: Setting) -> Explored:
    """All states that can be reached, the near ones first; stops at the first violation."""
    lanes_max = max(plan.lanes for plan in setting.plans)
    start = World(lanes=(Lane(),) * lanes_max)
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    to_do = deque([start])
    refused = complete = 0
    stuck: list[list[str]] = []
    while to_do:
        world = to_do.popleft()
        if world.violation is not None:
            return Explored(len(came_from), refused, complete, stuck, [*_way(came_from, world), world.violation])
        refused += world.is_refused
        complete += world.batch == BATCHES
        has_moves = False
        for label, following in _moves(setting, world):
            has_moves = True
            if following not in came_from:
                came_from[following] = (world, label)
                to_do.append(following)
        if not has_moves and not world.is_refused and world.batch < BATCHES and world.begun < setting.attempts_max:
            stuck.append(_way(came_from, world))
    return Explored(len(came_from), refused, complete, stuck, None)


def _way(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    labels: list[str] = []
    step = came_from[world]
    while step is not None:
        labels.append(step[1])
        step = came_from[step[0]]
    return labels[::-1]


def _moves(setting: Setting, world: World) -> Moves:
    if not world.is_refused and world.batch < BATCHES:
        yield from _driver_moves(setting, world)
    for number in range(len(world.attempts)):
        yield from _attempt_moves(setting, world, number)
    for number, lane in enumerate(world.lanes):
        if lane.open is not None:
            aborted = lane._replace(open=None, epoch=lane.epoch + 1)
            yield f"the broker's timeout aborts lane {number}", _with_lane(world, number, aborted)


def _driver_moves(setting: Setting, world: World) -> Moves:
    plan = setting.plans[world.plan]
    if setting.weakening is not Weakening.LANES_NOT_PINNED:
        if world.pinned is None:
            world = world._replace(pinned=plan.lanes)
        if world.pinned != plan.lanes:
            yield f"the driver is refused: {plan.lanes} lanes", world._replace(is_refused=True)
            return
    for lane in range(plan.lanes):
        if lane not in world.done and world.begun < setting.attempts_max:
            begun = _with_attempts(world, (*world.attempts, Attempt(plan, world.batch, lane)))
            yield f"lane {lane} of {plan.lanes}, batch {world.batch} begins", begun._replace(begun=world.begun + 1)
    if len(world.done) == plan.lanes:
        lost = plan.rows(world.batch) - set(world.written)
        violation = f"rows {sorted(lost)} are lost" if lost else None
        following = world._replace(batch=world.batch + 1, done=frozenset(), violation=violation)
        yield f"the driver commits batch {world.batch}", _abandoned(following)
    if world.crashes < setting.crashes_max:
        for number in range(world.plan, len(setting.plans)):
            is_lost = setting.loses_checkpoint and setting.plans[number].query != plan.query
            following = world._replace(crashes=world.crashes + 1, plan=number, done=frozenset())
            following = following._replace(batch=0 if is_lost else world.batch)
            yield f"the driver dies, the next has plan {number}", _abandoned(following)


def _abandoned(world: World) -> World:
    return _with_attempts(world, tuple(attempt._replace(is_awaited=False) for attempt in world.attempts))


def _attempt_moves(setting: Setting, world: World, number: int) -> Moves:
    attempt = world.attempts[number]
    rest = world.attempts[:number] + world.attempts[number + 1 :]
    reads_first = setting.weakening is Weakening.MARKER_READ_BEFORE_INIT
    who = "attempt" if attempt.is_awaited else "zombie"
    name = f"the {who} at lane {attempt.lane}, batch {attempt.batch}, epoch {attempt.epoch}"
    match attempt.step:
        case Step.BEGUN if not reads_first:
            yield f"{name} puts up its fence", _fenced(setting, world, rest, attempt, Step.FENCED)
        case Step.BEGUN | Step.FENCED:
            lane = world.lanes[attempt.lane]
            yield f"{name} reads the marker", _decided(setting, world, rest, attempt, lane.marker)
            if setting.has_former_leader and lane.marker is not None:
                shown = _decided(setting, world, rest, attempt, lane.marker_before)
                # A refusal is only this attempt's end: the next one is shown something else.
                shown = _with_attempts(world, rest) if shown.is_refused else shown
                yield f"{name} is shown the marker before", shown
        case Step.DECIDED if reads_first and attempt.epoch == 0:
            yield f"{name} puts up its fence", _fenced(setting, world, rest, attempt, Step.DECIDED)
        case Step.DECIDED:
            yield f"{name} writes", _produced(setting, world, rest, attempt)
        case Step.PRODUCED:
            yield from _commit_moves(setting, world, rest, attempt, name)
        case Step.HALF_DONE:
            lane = world.lanes[attempt.lane]._replace(marker=_marker_of(attempt))
            after = _with_lane(_with_attempts(world, rest), attempt.lane, lane)
            yield f"{name} commits its marker", _heard(after, attempt)


def _fenced(setting: Setting, world: World, rest: tuple[Attempt, ...], attempt: Attempt, step: Step) -> World:
    if setting.weakening is Weakening.ID_PER_ATTEMPT:
        return _with_attempts(world, (*rest, attempt._replace(step=step)))
    lane = world.lanes[attempt.lane]
    epoch = lane.epoch + 1
    world = _with_lane(world, attempt.lane, lane._replace(epoch=epoch, open=None))
    return _with_attempts(world, (*rest, attempt._replace(step=step, epoch=epoch)))


def _decided(
    setting: Setting, world: World, rest: tuple[Attempt, ...], attempt: Attempt, marker: Marker | None
) -> World:
    if setting.weakening is Weakening.NO_MARKER:
        marker = None
    claim = _claim_of(setting, attempt)
    if setting.weakening is Weakening.NO_MARKER:
        claim = dataclasses.replace(claim, accept_after=NOTHING)
    decision = decide(marker, claim)
    if isinstance(decision, Duplicate) and setting.weakening is not Weakening.DIGEST_IGNORED:
        decision = check(claim, decision.digest, _digest_of(attempt)) or decision
    without = _with_attempts(world, rest)
    if isinstance(decision, Duplicate):
        return _heard(without, attempt)
    if isinstance(decision, Refusal):
        return without._replace(is_refused=True) if attempt.is_awaited else without
    return _with_attempts(world, (*rest, attempt._replace(step=Step.DECIDED, read=marker)))


def _produced(setting: Setting, world: World, rest: tuple[Attempt, ...], attempt: Attempt) -> World:
    """Writes into its transaction; one that is fenced fails, and its driver may begin another."""
    produced = _with_attempts(world, (*rest, attempt._replace(step=Step.PRODUCED)))
    if setting.weakening is Weakening.ID_PER_ATTEMPT:
        return produced
    lane = world.lanes[attempt.lane]
    if lane.epoch != attempt.epoch:
        return _with_attempts(world, rest)
    rows = attempt.plan.rows_of(attempt.batch, attempt.lane)
    return _with_lane(produced, attempt.lane, lane._replace(open=(rows, _marker_of(attempt))))


def _commit_moves(setting: Setting, world: World, rest: tuple[Attempt, ...], attempt: Attempt, name: str) -> Moves:
    lane = world.lanes[attempt.lane]
    is_fenced = lane.epoch != attempt.epoch or lane.open is None
    if is_fenced and setting.weakening is not Weakening.ID_PER_ATTEMPT:
        yield f"{name} is fenced", _with_attempts(world, rest)
        return
    looks_below = setting.has_former_leader and setting.weakening is not Weakening.CLAIM_NOT_READ_BELOW
    if looks_below and attempt.read != lane.marker:
        aborted = _with_lane(world, attempt.lane, lane._replace(open=None, epoch=lane.epoch + 1))
        yield f"{name} finds another marker below its own, and aborts", _with_attempts(aborted, rest)
        return
    rows, marker = attempt.plan.rows_of(attempt.batch, attempt.lane), _marker_of(attempt)
    if setting.weakening is Weakening.MARKER_APART:
        half = _with_lane(_with_rows(world, rows), attempt.lane, lane._replace(open=None))
        yield f"{name} commits its rows", _with_attempts(half, (*rest, attempt._replace(step=Step.HALF_DONE)))
        return
    unheard = _with_attempts(world, rest)
    committed = _with_lane(
        _with_rows(unheard, rows), attempt.lane, lane._replace(open=None, marker=marker, marker_before=lane.marker)
    )
    yield f"{name} commits", _heard(committed, attempt)
    believes = setting.weakening is Weakening.UNKNOWN_IS_DONE
    yield f"{name} commits, and the answer is lost", _heard(committed, attempt) if believes else committed
    yield f"{name} asks for a commit that never arrives", _heard(unheard, attempt) if believes else unheard


def _heard(world: World, attempt: Attempt) -> World:
    """The driver that began the attempt hears of its success; one that is gone does not."""
    return world._replace(done=world.done | {attempt.lane}) if attempt.is_awaited else world


def _claim_of(setting: Setting, attempt: Attempt) -> LaneClaim:
    plan = attempt.plan
    lane_count = None if setting.weakening is Weakening.LANES_NOT_PINNED else plan.lanes
    return LaneClaim(SINK, attempt.lane, lane_count, plan.query, attempt.batch)


def _marker_of(attempt: Attempt) -> Marker:
    lane_count = attempt.read.lane_count if attempt.read is not None else attempt.plan.lanes
    claim = LaneClaim(SINK, attempt.lane, lane_count, attempt.plan.query, attempt.batch)
    return advance(attempt.read, claim, _digest_of(attempt))


def _digest_of(attempt: Attempt) -> Digest:
    rows = attempt.plan.rows_of(attempt.batch, attempt.lane)
    return Digest(len(rows), sum(1 << row for row in rows))


def _with_rows(world: World, rows: frozenset[int]) -> World:
    doubled = sorted(rows & set(world.written))
    written = tuple(sorted((*world.written, *rows)))
    return world._replace(written=written, violation=f"rows {doubled} are doubled" if doubled else world.violation)


def _with_lane(world: World, number: int, lane: Lane) -> World:
    return world._replace(lanes=(*world.lanes[:number], lane, *world.lanes[number + 1 :]))


def _with_attempts(world: World, attempts: tuple[Attempt, ...]) -> World:
    """In an order of their own, so that two states that differ in nothing else are one."""
    return world._replace(attempts=tuple(sorted(attempts, key=_place)))


def _place(attempt: Attempt) -> tuple[int, int, int, int, bool, Plan]:
    return attempt.lane, attempt.batch, attempt.step, attempt.epoch, attempt.is_awaited, attempt.plan
