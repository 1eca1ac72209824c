"""Whoever has a deadline is rung when it has passed, and again a little later if nothing came of it."""

import asyncio
from collections.abc import Callable

import pytest

from semel.broker.alarm import RING_AGAIN_MS, Alarm
from sim.virtual_loop import VirtualLoop

START_MS = 1_000_000


class Watched:
    """One with deadlines, which are over when it is rung."""

    def __init__(self, alarm: Alarm, *deadlines_ms: int) -> None:
        self.deadlines_ms = list(deadlines_ms)
        self.rung_at_ms: list[int] = []
        self.asked = 0
        # How often to fail before doing what it is rung for.
        self.refusals = 0
        alarm.watch(self.next_deadline_ms, self.ring)

    def next_deadline_ms(self) -> int | None:
        self.asked += 1
        return min(self.deadlines_ms, default=None)

    def ring(self, now_ms: int) -> None:
        self.rung_at_ms.append(now_ms)
        if self.refusals:
            self.refusals -= 1
            raise OSError("no space")
        self.deadlines_ms = [deadline_ms for deadline_ms in self.deadlines_ms if deadline_ms > now_ms]


class House:
    """An alarm in a time that is counted and not waited for, as the steady clock says."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.errors: list[Exception] = []
        self.alarm = Alarm(self.loop, self.steady_ms, self.attempt)

    def steady_ms(self) -> int:
        return START_MS + round(self.loop.time() * 1000)

    def attempt(self, job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:
            self.errors.append(error)

    def pass_ms(self, milliseconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(milliseconds / 1000))


@pytest.fixture
def house() -> House:
    return House()


def test_everybody_is_rung_when_the_time_has_come_and_not_before(house: House) -> None:
    one = Watched(house.alarm, START_MS + 50, START_MS + 20)
    other = Watched(house.alarm, START_MS + 30)
    nobody = Watched(house.alarm)
    house.alarm.look()
    house.pass_ms(100)
    assert one.rung_at_ms == [START_MS + 20, START_MS + 50]
    assert other.rung_at_ms == [START_MS + 30]
    assert nobody.rung_at_ms == []


def test_a_deadline_that_has_passed_already_rings_at_once(house: House) -> None:
    late = Watched(house.alarm, START_MS - 5_000)
    house.alarm.look()
    house.pass_ms(1)
    assert late.rung_at_ms == [START_MS]


def test_a_deadline_that_comes_up_earlier_than_all_others_is_kept(house: House) -> None:
    watched = Watched(house.alarm, START_MS + 1_000)
    house.alarm.look()
    house.pass_ms(10)
    watched.deadlines_ms.append(START_MS + 20)
    house.alarm.look()
    house.pass_ms(20)
    assert watched.rung_at_ms == [START_MS + 20]


def test_a_deadline_that_moves_on_with_every_request_costs_a_look_now_and_then(house: House) -> None:
    watched = Watched(house.alarm, START_MS + 100)
    house.alarm.look()
    for _ in range(1_000):
        house.pass_ms(1)
        watched.deadlines_ms = [house.steady_ms() + 100]
    assert watched.rung_at_ms == []
    assert watched.asked < 50


def test_nothing_runs_while_there_is_no_deadline(house: House) -> None:
    watched = Watched(house.alarm, START_MS + 10)
    house.alarm.look()
    house.pass_ms(20)
    asked = watched.asked
    house.pass_ms(3_600_000)
    assert watched.asked == asked


def test_who_could_not_do_it_is_rung_again_a_little_later_and_does_not_hold_up_the_others(house: House) -> None:
    unlucky = Watched(house.alarm, START_MS + 10)
    unlucky.refusals = 2
    other = Watched(house.alarm, START_MS + 20)
    house.alarm.look()
    house.pass_ms(5 * RING_AGAIN_MS)
    assert unlucky.rung_at_ms == [START_MS + 10 + again * RING_AGAIN_MS for again in range(3)]
    assert len(house.errors) == 2
    assert other.rung_at_ms == [START_MS + 20]


def test_an_alarm_goes_on_though_even_its_guard_broke_off(house: House) -> None:
    class Broken(Exception):
        pass

    broken = [Broken()]

    def guard(job: Callable[[], None]) -> None:
        if broken:
            raise broken.pop()
        house.attempt(job)

    house.alarm = Alarm(house.loop, house.steady_ms, guard)
    told: list[object] = []
    house.loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    first, second = (Watched(house.alarm, START_MS + after_ms) for after_ms in (10, 20))
    house.alarm.look()
    house.pass_ms(2 * RING_AGAIN_MS)
    assert [type(error) for error in told] == [Broken]
    assert first.rung_at_ms == [START_MS + 10 + RING_AGAIN_MS]
    assert second.rung_at_ms == [START_MS + 20]


def test_a_stopped_alarm_rings_nobody(house: House) -> None:
    watched = Watched(house.alarm, START_MS + 10)
    house.alarm.look()
    house.alarm.stop()
    house.alarm.look()
    house.pass_ms(100)
    assert watched.rung_at_ms == []
