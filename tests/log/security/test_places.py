"""Nobody takes every place: not one address, not many, not all clients of one listener; and the idlest goes first.

The machine opens and closes connections at will, and holds the promises of `semel.log.places` against a plain
count of who is there.
"""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from semel.log.places import THIS_MACHINE, Places

PLACES = 40
KEPT = 2
LISTENERS = ("inside", "outside")
HOSTS = ("127.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1")


class Guest:
    """A connection: whether its client has ever said something, and whether it was silent for long since."""

    def __init__(self) -> None:
        self.is_heard = self.is_idle = False


def places(**bounds: int) -> Places[Guest]:
    return Places(PLACES, lambda guest: guest.is_idle, **bounds)


def crowd(
    of: Places[Guest], host: str, count: int, groups: tuple[str, ...] = (), *, heard: bool = False
) -> list[Guest]:
    """The connections of a host that are let in; the host tries to open so many."""
    guests = []
    for _ in range(count):
        guest = Guest()
        if of.admit(guest, host, groups).is_let_in:
            guests.append(guest)
            if heard:
                guest.is_heard = True
                of.note_heard(guest)
    return [guest for guest in guests if guest in of]


def test_one_address_ends_with_half_of_the_places_and_several_with_equal_parts() -> None:
    for number in range(1, 6):
        of = places()
        parts = [len(crowd(of, f"10.0.0.{host}", PLACES, heard=True)) for host in range(number)]
        assert parts[0] == PLACES // 2
        assert len(of) < PLACES
        assert crowd(of, "10.9.9.9", 1)


def test_all_addresses_of_one_ipv6_network_are_one() -> None:
    of = places()
    crowd(of, "2001:db8::1", PLACES, heard=True)
    assert not crowd(of, "2001:db8::2", 1)
    assert crowd(of, "2001:db8:0:1::2", 1)


def test_an_address_that_has_too_many_gets_one_for_its_own_oldest_that_never_said_anything() -> None:
    of = places()
    silent = crowd(of, "10.0.0.1", PLACES // 2)
    newcomer = Guest()
    assert of.admit(newcomer, "10.0.0.1") == (True, silent[0])
    assert silent[0] not in of
    assert newcomer in of
    assert len(of) == PLACES // 2


def test_connections_at_work_never_displace() -> None:
    of = places()
    crowd(of, "10.0.0.1", PLACES // 2, heard=True)
    assert of.admit(Guest(), "10.0.0.1") == (False, None)


def test_who_was_silent_for_long_displaced_unless_it_is_at_work_again() -> None:
    of = places()
    busy = crowd(of, "10.0.0.1", PLACES // 2, heard=True)
    for guest in busy[:2]:
        guest.is_idle = True
        of.note_resting(guest)
    busy[0].is_idle = False
    assert of.admit(Guest(), "10.0.0.1") == (True, busy[1])
    assert of.admit(Guest(), "10.0.0.1").is_let_in, "the newest has not said anything yet"


def test_what_many_addresses_take_leaves_the_places_of_every_listener_and_of_this_machine() -> None:
    of = places(kept=KEPT, groups=(THIS_MACHINE, *LISTENERS))
    for number in range(PLACES):
        crowd(of, f"10.0.0.{number}", PLACES, ("outside",), heard=True)
    assert len(of) == PLACES - 2 * KEPT
    assert len(crowd(of, "10.9.9.9", PLACES, ("inside",), heard=True)) == KEPT
    assert len(crowd(of, "127.0.0.1", PLACES, (THIS_MACHINE, "outside"), heard=True)) == KEPT
    assert len(of) == PLACES


def test_the_address_with_the_most_displaced_for_one_that_has_fewer() -> None:
    of = places(kept=KEPT, groups=LISTENERS)
    silent = crowd(of, "10.0.0.1", PLACES // 2, ("outside",))
    for number in range(PLACES // 2 - KEPT):
        assert crowd(of, f"10.0.1.{number}", 1, ("outside",), heard=True)
    assert len(silent) == PLACES // 2
    assert of.admit(Guest(), "10.9.9.9", ("outside",)) == (True, silent[0])


def test_a_place_that_is_kept_for_others_does_not_help_a_newcomer() -> None:
    of = places(kept=KEPT, groups=LISTENERS)
    inside = crowd(of, "10.0.1.1", KEPT, ("inside",))
    for number in range(PLACES):
        crowd(of, f"10.0.0.{number}", PLACES, ("outside",), heard=True)
    assert not of.admit(Guest(), "10.9.9.9", ("outside",)).is_let_in
    assert all(guest in of for guest in inside)


def test_with_a_bound_for_each_address_the_rest_is_for_others() -> None:
    of = places(per_address_max=3)
    assert len(crowd(of, "10.0.0.1", 10, heard=True)) == 3
    assert len(crowd(of, "10.0.0.2", 10, heard=True)) == 3


class Crowds(RuleBasedStateMachine):
    """Clients come, speak, fall silent and go; the counts are kept beside."""

    guests = Bundle("guests")

    def __init__(self) -> None:
        super().__init__()
        self.of = places(kept=KEPT, groups=(THIS_MACHINE, *LISTENERS))
        self.present: dict[Guest, tuple[str, tuple[str, ...]]] = {}

    @rule(target=guests, host=st.sampled_from(HOSTS), listener=st.sampled_from(LISTENERS), count=st.integers(1, 15))
    def come(self, host: str, listener: str, count: int) -> Guest:
        groups = (THIS_MACHINE, listener) if host == "127.0.0.1" else (listener,)
        for _ in range(count):
            guest = Guest()
            free_before = len(self.present) < PLACES
            is_let_in, leaver = self.of.admit(guest, host, groups)
            if leaver is not None:
                assert is_let_in
                assert not leaver.is_heard or leaver.is_idle
                del self.present[leaver]
            else:
                assert free_before or not is_let_in
            if is_let_in:
                self.present[guest] = host, groups
        return guest

    @rule(guest=guests)
    def speak(self, guest: Guest) -> None:
        if guest in self.of:
            guest.is_heard, guest.is_idle = True, False
            self.of.note_heard(guest)

    @rule(guest=guests)
    def fall_silent(self, guest: Guest) -> None:
        if guest in self.of:
            guest.is_idle = True
            self.of.note_resting(guest)

    @rule(guest=consumes(guests))
    def go(self, guest: Guest) -> None:
        self.of.leave(guest)
        self.present.pop(guest, None)

    @invariant()
    def those_who_are_there_are_counted(self) -> None:
        assert len(self.of) == len(self.present) <= PLACES
        assert all(guest in self.of for guest in self.present)

    @invariant()
    def every_listener_has_its_places(self) -> None:
        of_group = Counter(group for _, groups in self.present.values() for group in groups)
        missing = sum(max(KEPT - of_group[group], 0) for group in (THIS_MACHINE, *LISTENERS))
        # A client on this machine fills a place of two groups with one.
        assert PLACES - len(self.present) >= missing - KEPT


TestCrowds = Crowds.TestCase
