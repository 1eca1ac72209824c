"""Shares of producers: no producer is dropped, no address takes all, and an address that comes later gets some."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.shares import ADDRESSES_MAX, BUCKET_MS, NoShareLeft, Shares, address_of
from semel.wire.refusals import POLICY_VIOLATION


class Sharing:
    """Shares of something that nobody gives back, and the addresses that take of it."""

    def __init__(self, states_max: int) -> None:
        self.shares = Shares(states_max)
        self.taken = 0

    def take(self, address: str | None, wanted: int = 1) -> bool:
        try:
            self.shares.check(wanted, self.taken, address, None)
        except NoShareLeft as refused:
            return refused.error != POLICY_VIOLATION
        self.shares.charge(wanted, address, 0, None)
        self.taken += wanted
        return True


@pytest.mark.parametrize("greedy", [1, 2, 3, 9])
def test_however_many_take_all_they_can_get_there_is_as_much_left_as_each_of_them_has(greedy: int) -> None:
    sharing = Sharing(1_000)
    takers = {f"10.0.0.{number}" for number in range(greedy)}
    while takers:
        takers = {address for address in takers if sharing.take(address)}
    left = 1_000 - sharing.taken
    assert left >= 1_000 // (greedy + 1) - 1
    honest = 0
    while sharing.take("10.1.1.1"):
        honest += 1
    assert honest >= left // 2


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from(["one", "two", "three", "four"]), st.integers(1, 5)), max_size=60),
)
def test_nobody_is_refused_while_half_is_free_or_who_has_less_than_there_is_free(
    states_max: int, wishes: list[tuple[str, int]]
) -> None:
    """Held against taking one by one."""
    sharing = Sharing(states_max)
    has = dict.fromkeys(("one", "two", "three", "four"), 0)
    for address, wanted in wishes:
        taken, mine = sharing.taken, has[address]
        allowed = True
        for _ in range(wanted):
            free = states_max - taken
            allowed = allowed and free > 0 and (2 * (sharing.taken + wanted) <= states_max or mine < free)
            taken, mine = taken + 1, mine + 1
        assert sharing.take(address, wanted) == allowed
        if allowed:
            has[address] = mine
        assert sharing.shares.charged(address, None) == has[address]
    assert sharing.taken <= states_max


def test_the_logs_own_take_what_there_is() -> None:
    sharing = Sharing(10)
    assert sharing.take(None, 10)
    assert not sharing.take(None)


def test_what_was_put_on_record_before_the_horizon_is_not_charged_any_more() -> None:
    shares = Shares(10)
    shares.charge(4, "one", 0, None)
    shares.charge(3, "one", BUCKET_MS, None)
    assert shares.charged("one", BUCKET_MS - 1) == 7
    assert shares.charged("one", BUCKET_MS) == 3
    again = Shares(10)
    again.restore(shares.snapshot())
    again.charge(1, "one", 9 * BUCKET_MS, 2 * BUCKET_MS)
    assert again.snapshot() == [["one", [(9, 1)]]]


def test_very_many_addresses_are_not_all_remembered_but_the_greediest_are() -> None:
    shares = Shares(10_000_000)
    for number in range(3 * ADDRESSES_MAX):
        shares.charge(1, f"address {number}", 0, None)
        shares.charge(100, "greedy", 0, None)
        assert len(shares.snapshot()) <= ADDRESSES_MAX
    assert shares.charged("greedy", None) == 300 * ADDRESSES_MAX


def test_a_network_of_ipv6_is_one_address() -> None:
    assert address_of("2001:db8:1:2:aaaa::1") == address_of("2001:db8:1:2::ffff") == "2001:db8:1:2::/64"
    assert address_of("2001:db8:1:3::1") != address_of("2001:db8:1:2::1")
    assert address_of("::ffff:10.0.0.7") == address_of("10.0.0.7") == "10.0.0.7"
    assert address_of("fe80::1%eth0") == "fe80::/64"
    assert address_of("local") == "local"
