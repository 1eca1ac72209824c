"""Work is begun when its deadline has passed, however often that moved, and again a little later if it broke off."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.broker.alarm import DUE_AGAIN_MS, Alarm
from semel.log.broker.clock import Clock
from semel.testing.virtual_loop import VirtualLoop
from semel.wire.steps import Steps, finish

START_MS = 1_000_000

times = st.integers(1, 50)


class House:
    """An alarm in a time that is counted and not waited for."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        began_s = self.loop.time()
        self.clock = Clock(lambda: START_MS / 1000 + self.loop.time() - began_s, self.loop)
        self.slips: list[Exception] = []
        self.passes = 0
        self.alarm = Alarm(self.clock, self.begin, self.slips.append)

    def begin(self, steps: Steps[None]) -> None:
        self.passes += 1
        finish(steps)

    def pass_ms(self, milliseconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(milliseconds / 1000))


class Named:
    """One piece with deadlines, whose work is over when it is done."""

    def __init__(self, house: House, **due_in_ms: int) -> None:
        self._house = house
        self.done: list[tuple[str, int]] = []
        # How often the work for a name breaks off before it is done.
        self.refusals: dict[str, int] = {}
        # When there is something to do for a name, where that has moved since it was noted.
        self.moved_to_ms: dict[str, int] = {}
        self.deadlines = house.alarm.deadlines(self.work)
        self.note(**due_in_ms)

    def note(self, **due_in_ms: int) -> None:
        async def note() -> None:
            for name, due_ms in due_in_ms.items():
                self.deadlines.note(name, START_MS + due_ms)

        self._house.loop.run_until_complete(note())

    def work(self, name: str, now_ms: int) -> Steps[None]:
        yield 1
        if self.moved_to_ms.get(name, 0) > now_ms:
            self.deadlines.note(name, self.moved_to_ms[name])
            return
        self.done.append((name, now_ms - START_MS))
        if self.refusals.get(name):
            self.refusals[name] -= 1
            raise OSError("no space")


@pytest.fixture
def house() -> House:
    return House()


def test_work_is_begun_when_its_time_has_come_and_not_before(house: House) -> None:
    one, other = Named(house, late=50, soon=20), Named(house, soon=30)
    idle = Named(house)
    house.pass_ms(100)
    assert one.done == [("soon", 20), ("late", 50)]
    assert other.done == [("soon", 30)]
    assert idle.done == []


def test_a_deadline_that_has_passed_already_rings_at_once(house: House) -> None:
    late = Named(house, name=-5_000)
    house.pass_ms(1)
    assert late.done == [("name", 0)]


def test_a_deadline_that_comes_up_earlier_than_all_others_is_kept(house: House) -> None:
    named = Named(house, late=1_000)
    house.pass_ms(10)
    named.note(soon=20)
    house.pass_ms(20)
    assert named.done == [("soon", 20)]


def test_a_deadline_that_moves_on_with_every_request_costs_a_look_now_and_then(house: House) -> None:
    named = Named(house, name=100)
    for millisecond in range(1_000):
        house.pass_ms(1)
        named.moved_to_ms["name"] = START_MS + millisecond + 100
    assert named.done == []
    assert house.passes < 50


def test_never_is_no_time(house: House) -> None:
    named = Named(house)
    named.deadlines.note("name", None)
    assert named.deadlines.next_ms() is None
    house.pass_ms(3_600_000)
    assert house.passes == 0


def test_work_that_breaks_off_is_begun_again_a_little_later_and_holds_up_no_other(house: House) -> None:
    named, other = Named(house, unlucky=10, behind=10), Named(house, other=20)
    named.refusals["unlucky"] = 2
    house.pass_ms(5 * DUE_AGAIN_MS)
    tries = [("unlucky", 10 + again * DUE_AGAIN_MS) for again in range(3)]
    assert sorted(named.done) == [("behind", 10), *tries]
    assert len(house.slips) == 2
    assert other.done == [("other", 20)]


def test_an_alarm_goes_on_though_work_could_not_even_be_begun(house: House) -> None:
    class Broken(Exception):
        pass

    broken = [Broken()]

    def begin(steps: Steps[None]) -> None:
        if broken:
            raise broken.pop()
        finish(steps)

    house.alarm = Alarm(house.clock, begin, house.slips.append)
    errors: list[object] = []
    house.loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    first, second = Named(house, first=10), Named(house, second=20)
    house.pass_ms(100)
    assert [type(error) for error in errors] == [Broken]
    assert first.done == [("first", 10)]
    assert second.done == [("second", 20)]


def test_a_stopped_alarm_begins_nothing(house: House) -> None:
    named = Named(house, name=10)
    house.alarm.stop()
    named.note(sooner=5)
    house.pass_ms(100)
    assert named.done == []


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abcd"), times), times), max_size=40))
def test_no_name_is_due_before_the_earliest_time_that_was_noted_or_missed_after_it(
    events: list[tuple[str, int] | int],
) -> None:
    done: list[str] = []

    def work(name: str, now_ms: int) -> Steps[None]:
        done.append(name)
        yield 1

    house = House()
    # No time passes in which the alarm would ring by itself.
    house.alarm.stop()
    deadlines = house.alarm.deadlines(work)
    earliest: dict[str, int] = {}
    for event in events:
        if isinstance(event, tuple):
            name, at_ms = event
            deadlines.note(name, at_ms)
            earliest[name] = min(at_ms, earliest.get(name, 1000))
        else:
            finish(deadlines.pass_time(event))
            assert sorted(done) == sorted(name for name, at_ms in earliest.items() if at_ms <= event)
            assert [earliest[name] for name in done] == sorted(earliest[name] for name in done)
            for name in done:
                del earliest[name]
            done.clear()
        assert deadlines.next_ms() == min(earliest.values(), default=None)
