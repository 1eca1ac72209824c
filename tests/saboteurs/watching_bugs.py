"""The planted bugs of what a broker tells those who watch it: too much, too little, or to somebody else."""

from typing import Final

from saboteurs.planting import Bug

_DECISIONS: Final = "tests/broker/test_decisions.py"

WATCHING_BUGS: Final[tuple[Bug, ...]] = (
    # -- decisions ----------------------------------------------------------------------------------------------------
    Bug(
        "decisions are put together while nobody watches",
        "semel.broker.apis.produce:_append",
        "broker.decisions.is_watched",
        "True",
        (f"{_DECISIONS}::test_nothing_is_put_together_while_nobody_watches",),
    ),
    Bug(
        "decisions that gave way are not counted",
        "semel.broker.decisions:Subscription.hear",
        "self._lost += 1",
        "pass",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "a subscriber who does not read has the broker hold everything",
        "semel.broker.decisions:Subscription.hear",
        "len(self._held) == self._held_max",
        "False",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "decisions are put together when the last who watched has gone",
        "semel.broker.decisions:Decisions.unsubscribe",
        "self.is_watched = bool(self._subscriptions)",
        "pass",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "a page under a name that resolves to this machine is told decisions",
        "semel.broker.metrics_server:_check_asker",
        "ip_address(host)",
        "pass",
        (f"{_DECISIONS}::test_no_page_of_a_browser_is_told_a_decision",),
    ),
    Bug(
        "other machines are told decisions",
        "semel.broker.metrics_server:serve_metrics",
        "insecure or listener.is_on_loopback",
        "True",
        (f"{_DECISIONS}::test_other_machines_are_told_decisions_only_where_the_network_is_trusted",),
    ),
)
