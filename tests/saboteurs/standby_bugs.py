"""The planted bugs of standbys that Metadata names: what would keep a client from the next broker, or disturb it."""

from typing import Final

from saboteurs.planting import Bug

_ANSWERS: Final = "tests/replica/test_standby_answers.py"
_STATUS: Final = "tests/replica/test_status.py"

STANDBY_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "no client is told where the standby is",
        "semel.broker.role:Role._standbys",
        "self._membership.standbys",
        "()",
        (f"{_ANSWERS}::test_a_standby_is_named_while_it_runs_and_one_that_was_lost_is_not",),
    ),
    Bug(
        "a broker that was active is taken for a standby when it is lost",
        "semel.replica.membership:Membership._watch_standbys",
        "await self._note.remove()",
        "pass",
        (f"{_ANSWERS}::test_a_standby_is_named_while_it_runs_and_one_that_was_lost_is_not",),
    ),
    Bug(
        "a standby that died is named to clients for ever",
        "semel.replica.note:NoteWatch.look",
        "now - changed <= SILENT_SECONDS",
        "True",
        (f"{_STATUS}::test_a_standby_is_named_to_clients_while_its_note_changes",),
    ),
    Bug(
        "a client may ask a standby for a missing topic for ever",
        "semel.broker.apis.metadata:handle",
        "exchange.connection.was_referred = True",
        "pass",
        (f"{_ANSWERS}::test_a_client_that_goes_on_asking_a_standby_for_a_missing_topic_is_sent_away",),
    ),
    Bug(
        "a standby forwards its own request when that comes back",
        "semel.broker.forwarder:Forwarder.takes",
        "exchange.peer not in self._own",
        "True",
        (f"{_ANSWERS}::test_a_standby_whose_active_broker_seems_to_be_itself_does_not_forward_for_ever",),
    ),
    Bug(
        "a standby forwards the requests of clients that the active broker has to know",
        "semel.broker.broker:Broker._may_forward",
        "self._access_rules or self.doors.need_access_rules",
        "False",
        (f"{_ANSWERS}::test_a_standby_answers_by_itself_where_clients_have_to_log_in",),
    ),
)
