"""The planted bugs of a planned takeover: what would keep a broker that is asked to resign, or lose the active one."""

from typing import Final

from saboteurs.planting import Bug

_CUT_OFF: Final = "tests/log/replica/test_cut_off.py"

RESIGNATION_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a broker that is asked to resign overwrites the wish, and stays",
        "semel.log.replica.lease:LeaseHolder.renew",
        "found.resigns",
        "False",
        (
            "tests/log/replica/test_cut_off.py::test_a_broker_that_is_asked_to_resign_hands_over_while_clients_are_served",
        ),
        20.0,
    ),
    Bug(
        "a broker without a standby resigns, and nobody is active",
        "semel.log.replica.membership:Membership.keep_lease",
        "has_resigned = await self.finds_standby()",
        "has_resigned = True",
        (f"{_CUT_OFF}::test_a_broker_without_a_standby_does_not_resign",),
        20.0,
    ),
    Bug(
        "two operators who want a takeover at once end the active broker as fenced",
        "semel.log.replica.lease:LeaseHolder.renew",
        "self._version = version",
        "pass",
        (f"{_CUT_OFF}::test_two_operators_who_want_a_takeover_at_once_cost_no_broker_its_lease",),
        20.0,
    ),
)
