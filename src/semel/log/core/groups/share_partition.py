"""A share partition: which records of one partition a share group (KIP-932) has delivered, how often, and to whom.

Every record of the partition is in one of three states:

                     acquire: deliveries + 1
      AVAILABLE  --------------------------------->  ACQUIRED by one member, until its lock times out
          ^                                              |   |
          |   release, time-out, the member is gone      |   |   accept, reject, or there is no such record;
          +----------------------------------------------+   |   or it was to be released, but was delivered
                                                             |   as often as the group allows
      DONE, for ever  <--------------------------------------+

Only a window of offsets has to be remembered:

              start                                                  end
      DONE      | acquired, 1 | available, 2 | done | acquired, 1 |    AVAILABLE, never delivered

The window is a row of runs without gaps; a run has a state, the number of deliveries, and while it is acquired its
holder and the time of its lock. There is never an object for each record: a run is split only where its records go
different ways, and equal neighbours become one run again. `start` moves over runs that are done. Nobody acquires a
record that lies `locks_max` or more after `start`, so that bounds the number of runs as well.

The log says which offsets it has (`LogSpan`). Those that it lacks, because compaction removed them, and those that
nobody may see, such as markers and aborted records, are done at once. So are those before the log's start.

`decide_...` returns the runs that change, and `apply` changes them. An entry keeps states and deliveries. Holders and
locks are in memory only (`hold`): after a restart no connection is left over which a holder could answer, so the broker
releases what is acquired. But every delivery is counted before its answer is sent, so a record that kills its consumer
is not delivered for ever, however often the broker restarts. Times and names are arguments.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from semel.log.core.entries import ShareBatch
from semel.log.core.values import value
from semel.wire.refusals import INVALID_RECORD_STATE, INVALID_REQUEST, Refused

AVAILABLE: Final = 0
ACQUIRED: Final = 1
DONE: Final = 2

# What a client says about an offset; GAP means that it got no record there.
GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

# A record that was delivered so often may be the one that kills its consumers, as in Apache Kafka: fewer are delivered
# together with it, and it gets its last delivery alone.
_SUSPECT_FROM_MIN: Final = 2

# Runs of a batch of the log that a member acquires at once, and before another batch; it gets the others with its next
# request.
_CHANGES_MAX: Final = 1_000

# Words in one range. A member acknowledges what it was delivered at once, and no window is that long.
WORDS_MAX: Final = 100_000


class LogSpan(NamedTuple):
    """Offsets of one batch of the log, and whether members may see its records."""

    first: int
    last: int
    is_visible: bool


class Ack(NamedTuple):
    """What a member says about the offsets of a range: one word for all of them, or one for each."""

    first: int
    last: int
    words: Sequence[int]


@value
class ShareRules:
    """The settings of a share group, with Kafka's defaults (group.share.*)."""

    # How often a record is delivered at most.
    deliveries_max: int = 5
    # How far the records that are delivered may lie after the first one that is not done.
    locks_max: int = 2_000
    lock_ms: int = 30_000
    may_renew: bool = True
    # Where a share partition begins: `earliest`, `latest` or a duration.
    reset: str = "latest"
    # Whether records of open transactions wait, and those of aborted ones are done.
    committed_only: bool = False

    @property
    def suspect_from(self) -> int:
        """From this number of deliveries on, a record is delivered with few others."""
        return max(_SUSPECT_FROM_MIN, (self.deliveries_max + 1) // 2)


class Wish(NamedTuple):
    """What a member wants to acquire. Unless the limit is strict, the last batch of the log is acquired as a whole."""

    records_max: int
    is_strict: bool
    # Into how many records the answer is divided, at the boundaries of the log's batches.
    batch_records: int


class RunState(NamedTuple):
    """The state of the records in a run."""

    kind: int
    deliveries: int
    # Both only while it is acquired, and not after a restart. The rules only ask whether two holders are the same.
    holder: Hashable = None
    until_ms: int = 0


class Outcome(NamedTuple):
    """The runs that change, those that the member holds from now on for the whole time of a lock, and the runs that
    got each word from it.
    """

    changes: list[ShareBatch]
    held: list[ShareBatch]
    said: Mapping[int, list[ShareBatch]] = MappingProxyType({})


@cache
def _held_by_nobody(kind: int, deliveries: int) -> RunState:
    """The same object for all runs, of which there may be a million. A group delivers a record 25 times at most."""
    return RunState(kind, deliveries)


_NEW: Final = _held_by_nobody(AVAILABLE, 0)


class SharePartition:
    """One share partition. Only `apply` and `hold` change it."""

    __slots__ = ("_firsts", "_no_available_before", "_no_deadline_before_ms", "_states", "end", "window")

    def __init__(self, start: int) -> None:
        # The first offset of each run, and its state. The next run begins where a run ends; the last ends at `end`.
        self._firsts = array("q")
        self._states: list[RunState] = []
        self.end = start
        # How many records there are from `start` on to `end`.
        self.window = 0
        # No offset before this one is available; a time before which no lock times out.
        self._no_available_before = start
        self._no_deadline_before_ms: int | None = None

    # Looking up

    @property
    def start(self) -> int:
        """The first offset that is not done."""
        return self._firsts[0] if self._firsts else self.end

    @property
    def run_count(self) -> int:
        return len(self._firsts)

    @property
    def done_count(self) -> int:
        """How many offsets after `start` are done."""
        return sum(last - first + 1 for first, last, state in self.runs() if state.kind == DONE)

    @property
    def has_acquired(self) -> bool:
        return any(state.kind == ACQUIRED for state in self._states)

    def runs(self, first: int | None = None, last: int | None = None) -> Iterator[tuple[int, int, RunState]]:
        """The runs, or the parts of them between these offsets: the first and the last offset and the state of each."""
        firsts, states = self._firsts, self._states
        first = self.start if first is None else max(first, self.start)
        last = self.end - 1 if last is None else min(last, self.end - 1)
        at = max(bisect_right(firsts, first) - 1, 0)
        while first <= last:
            run_last = min(firsts[at + 1] - 1 if at + 1 < len(firsts) else self.end - 1, last)
            yield first, run_last, states[at]
            first = run_last + 1
            at += 1

    def next_offset(self, log_start: int, rules: ShareRules) -> int | None:
        """The first offset that a member could acquire now; None while there is none."""
        begin = max(self._no_available_before, log_start)
        offset = max(self.end, log_start)
        for first, _, state in self.runs(begin):
            if state.kind == AVAILABLE:
                offset = first
                break
        self._no_available_before = offset
        # The group's window may have been larger before.
        return offset if offset < max(self.start, log_start) + rules.locks_max else None

    # Deciding

    def decide_acquire(
        self, spans: Iterable[LogSpan], begin: int, log_start: int, wish: Wish, rules: ShareRules
    ) -> Outcome:
        """What a member acquires of the log's batches from offset `begin` on. What the log has deleted is done, and so
        are the offsets between these batches.
        """
        start = max(self.start, log_start)
        result = Outcome([ShareBatch(self.start, start - 1, DONE, 0)] if start > self.start else [], [])
        at, stop = max(begin, start), start + rules.locks_max
        if at > max(self.end, log_start):
            # Between the end and what was read could be records that nobody has looked at.
            return result
        budget = _Budget(wish, rules)
        for first, last, is_visible in spans:
            if budget.is_used_up or max(at, first) >= stop or len(result.changes) >= _CHANGES_MAX:
                break
            if last < at:
                continue
            result.changes.extend(self._gone(at, first - 1))
            first, last = max(at, first), min(last, stop - 1)
            if is_visible:
                for some in islice(self._acquirable(first, last, budget), _CHANGES_MAX):
                    result.changes.append(some)
                    _join(result.held, some, None if wish.is_strict else wish.batch_records)
            else:
                result.changes.extend(self._gone(first, last))
            at = last + 1
        return result

    def _gone(self, first: int, last: int) -> Iterator[ShareBatch]:
        """The offsets of this range that are done because there is no record to deliver."""
        for run_first, run_last, state in self._with_new(first, last):
            if state.kind == AVAILABLE:
                yield ShareBatch(run_first, run_last, DONE, state.deliveries)

    def _acquirable(self, first: int, last: int, budget: "_Budget") -> Iterator[ShareBatch]:
        for run_first, run_last, state in self._with_new(first, last):
            if state.kind == AVAILABLE:
                count = budget.take(run_last - run_first + 1, state.deliveries, self._run_size(run_first))
                if count:
                    yield ShareBatch(run_first, run_first + count - 1, ACQUIRED, state.deliveries + 1)

    def _with_new(self, first: int, last: int) -> Iterator[tuple[int, int, RunState]]:
        """The runs of a range, with the offsets after the window as one that was never delivered."""
        if first <= last:
            yield from self.runs(first, last)
            if last >= self.end:
                yield max(first, self.end), last, _NEW

    def _run_size(self, offset: int) -> int:
        for first, last, _ in self.runs(offset, self.end):
            return last - first + 1
        return 1

    def decide_acknowledge(self, holder: Hashable, acks: Iterable[Ack], rules: ShareRules) -> Outcome:
        """The changes that a member's words make; Refused, without any change, if it does not hold all of the records.

        The ranges are in order. What lies before `start` was done in the meantime.
        """
        said: dict[int, list[ShareBatch]] = {}
        result = Outcome([], [], said)
        before = -1
        for ack in acks:
            if ack.last < self.start:
                continue
            if ack.first <= before:
                # After the first word nobody holds the record any more.
                raise Refused(INVALID_RECORD_STATE, f"the request acknowledges the record {ack.first} twice")
            before = ack.last
            if self.start == self.end:
                raise Refused(INVALID_RECORD_STATE, f"no record at offset {ack.first} is delivered to anybody")
            if ack.last >= self.end:
                raise Refused(INVALID_REQUEST, f"the records end at offset {self.end - 1}, not at {ack.last}")
            for first, last, word in _said(ack, self.start):
                for run_first, run_last, state in self.runs(first, last):
                    if state.kind != ACQUIRED or state.holder != holder:
                        raise Refused(INVALID_RECORD_STATE, f"the member does not hold the record {run_first}")
                    kind = ACQUIRED if word == RENEW else _released(state, rules) if word == RELEASE else DONE
                    after = ShareBatch(run_first, run_last, kind, state.deliveries)
                    said.setdefault(word, []).append(after)
                    (result.held if word == RENEW else result.changes).append(after)
        if result.held and not rules.may_renew:
            raise Refused(
                INVALID_RECORD_STATE,
                "the group does not allow locks to be renewed: share.renew.acknowledge.enable is false",
            )
        return result

    def decide_release(self, which: Callable[[RunState], bool], rules: ShareRules) -> list[ShareBatch]:
        """The changes when nobody holds the acquired runs any more of which this is true."""
        return [
            ShareBatch(first, last, _released(state, rules), state.deliveries)
            for first, last, state in self.runs()
            if state.kind == ACQUIRED and which(state)
        ]

    # Locks

    def hold(self, batches: Iterable[ShareBatch], holder: Hashable, until_ms: int) -> None:
        """These acquired runs belong to a member until then."""
        held: dict[int, RunState] = {}
        for batch in batches:
            for first, last, state in list(self.runs(batch.first, batch.last)):
                if state.kind == ACQUIRED:
                    new = held.setdefault(state.deliveries, RunState(ACQUIRED, state.deliveries, holder, until_ms))
                    self._set(first, last, new)
        if self._no_deadline_before_ms is None or until_ms < self._no_deadline_before_ms:
            self._no_deadline_before_ms = until_ms

    def next_deadline_ms(self) -> int | None:
        """When to call `decide_overdue` next; None if nothing is held."""
        return self._no_deadline_before_ms

    def decide_overdue(self, now_ms: int, rules: ShareRules) -> list[ShareBatch]:
        """The changes of those whose lock has timed out, as all locks have after a restart."""
        deadlines = {state.until_ms for state in self._states if state.kind == ACQUIRED and state.until_ms > now_ms}
        self._no_deadline_before_ms = min(deadlines, default=None)
        return self.decide_release(lambda state: state.until_ms <= now_ms, rules)

    # Applying

    def check(self, batches: Iterable[ShareBatch]) -> None:
        """ValueError for runs that would leave a gap in the window."""
        end = self.end
        for first, last, kind, _ in batches:
            if not first <= last or first > end or kind not in (AVAILABLE, ACQUIRED, DONE):
                raise ValueError(f"the offsets {first} to {last} cannot follow a window that ends at {end}")
            end = max(end, last + 1)

    def apply(self, batches: Iterable[ShareBatch]) -> None:
        """Change these runs, as `check` has accepted them."""
        for first, last, kind, deliveries in batches:
            if last >= self.start:
                self._set(max(first, self.start), last, _held_by_nobody(kind, deliveries))
                if kind == AVAILABLE:
                    self._no_available_before = min(self._no_available_before, max(first, self.start))
        count = 0
        while count < len(self._states) and self._states[count].kind == DONE:
            count += 1
        del self._firsts[:count], self._states[:count]
        self.window = self.end - self.start

    def _set(self, first: int, last: int, state: RunState) -> None:
        """Make this range one run, together with its neighbours if they are equal."""
        firsts, states = self._firsts, self._states
        begin = bisect_right(firsts, first - 1)
        stop = bisect_right(firsts, last)
        # What is left of the run in which the range ends.
        is_cut = last + 1 < self.end and not self._begins(stop, last + 1)
        after = [(last + 1, states[stop - 1])] if is_cut else []
        if begin and states[begin - 1] == state:
            begin -= 1
            first = firsts[begin]
        if after and after[0][1] == state:
            after = []
        elif self._begins(stop, last + 1) and states[stop] == state:
            stop += 1
        self.end = max(self.end, last + 1)
        firsts[begin:stop] = array("q", [first, *[offset for offset, _ in after]])
        states[begin:stop] = [state, *[rest for _, rest in after]]

    def _begins(self, at: int, offset: int) -> bool:
        return at < len(self._firsts) and self._firsts[at] == offset

    # Checkpoints

    def snapshot(self) -> dict[str, Any]:
        """The stored state, as values that JSON can hold; later changes do not affect it."""
        # There may be a million runs: no loop, and no object for each.
        states = self._states
        kinds, deliveries = list(map(itemgetter(0), states)), list(map(itemgetter(1), states))
        return {"firsts": self._firsts.tolist(), "kinds": kinds, "deliveries": deliveries, "end": self.end}

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any]) -> "SharePartition":
        partition = cls(snapshot["end"])
        partition._firsts = array("q", snapshot["firsts"])
        partition._states = list(map(_held_by_nobody, snapshot["kinds"], snapshot["deliveries"]))
        partition._no_available_before = partition.start
        partition.window = partition.end - partition.start
        return partition


class _Budget:
    """How many records may still be acquired. It is used up with the first record that is not acquired."""

    def __init__(self, wish: Wish, rules: ShareRules) -> None:
        self._left = wish.records_max
        self._is_strict = wish.is_strict
        self._rules = rules
        self._has_taken = False
        # If the answer has suspects: how often they were delivered. No others are delivered with them.
        self._suspects: int | None = None

    @property
    def is_used_up(self) -> bool:
        return self._left <= 0

    def take(self, count: int, deliveries: int, run_size: int) -> int:
        """How many of `count` records with so many deliveries are acquired; they lie in a run of `run_size`."""
        suspect_from = self._rules.suspect_from
        is_suspect = deliveries >= suspect_from
        if is_suspect and not self._has_taken:
            is_last = deliveries >= self._rules.deliveries_max - 1
            share = 1 if is_last else max(1, run_size >> (deliveries - suspect_from + 1))
            self._left, self._suspects, self._is_strict = min(self._left, share), deliveries, True
        elif deliveries != self._suspects and (is_suspect or self._suspects is not None):
            self._left = 0
        if self._left <= 0:
            return 0
        taken = min(count, self._left) if self._is_strict else count
        self._left = self._left - taken if taken == count else 0
        self._has_taken = True
        return taken


def _released(state: RunState, rules: ShareRules) -> int:
    return AVAILABLE if state.deliveries < rules.deliveries_max else DONE


def _said(ack: Ack, start: int) -> Iterator[tuple[int, int, int]]:
    """The ranges from `start` on in which every record has the same word."""
    first = max(ack.first, start)
    if len(ack.words) == 1:
        yield first, ack.last, ack.words[0]
        return
    for word, same in groupby(ack.words[first - ack.first :]):
        last = first + len(list(same)) - 1
        yield first, last, word
        first = last + 1


def _join(acquired: list[ShareBatch], more: ShareBatch, batch_records: int | None) -> None:
    """Add a run to those of an answer, to the last of them if it follows that and is not full."""
    before = acquired[-1] if acquired else None
    is_same = before is not None and before.last + 1 == more.first and before.deliveries == more.deliveries
    if before is not None and is_same and (batch_records is None or before.last - before.first + 1 < batch_records):
        acquired[-1] = before._replace(last=more.last)
    else:
        acquired.append(more)


def check_acks(acks: Iterable[Ack], *, renews: bool, word_max: int) -> Iterator[Ack]:
    """The same acknowledgements, one by one; Refused if they make no sense in any state."""
    end = -1
    for ack in acks:
        count = len(ack.words)
        if not end <= ack.first <= ack.last or not 0 < count <= WORDS_MAX:
            raise Refused(INVALID_REQUEST, f"the range {ack.first} to {ack.last} is empty, too long, or not in order")
        if count > 1 and count != ack.last - ack.first + 1:
            raise Refused(INVALID_REQUEST, f"the range {ack.first} to {ack.last} has {count} acknowledge types")
        words = set(ack.words)
        if not 0 <= min(words) <= max(words) <= word_max or (RENEW in words and not renews):
            raise Refused(INVALID_REQUEST, f"acknowledge type {max(words)} is none that this request may have")
        end = ack.last
        yield ack
