"""The planted bugs of what a broker tells those who watch it: too much, too little, or to somebody else."""

from typing import Final

from saboteurs.planting import Bug

_EVENTS: Final = "tests/log/broker/test_events.py"
_RUNS_OUT: Final = "tests/log/broker/test_what_runs_out.py"
_DECISIONS: Final = "tests/log/broker/test_decisions.py"
_PAGE: Final = "tests/ui/console/test_pages_of_decisions.py"
_STATUS: Final = "tests/log/replica/test_status.py"

WATCHING_BUGS: Final[tuple[Bug, ...]] = (
    # -- decisions ----------------------------------------------------------------------------------------------------
    Bug(
        "decisions are put together while nobody watches",
        "semel.log.broker.apis.produce:_append",
        "broker.decisions.is_watched",
        "True",
        (f"{_DECISIONS}::test_nothing_is_put_together_while_nobody_watches",),
    ),
    Bug(
        "decisions that an event does not list are not counted",
        "semel.log.broker.decisions:Subscription.take",
        "left_out[_WORDS[decision.verdict.outcome]] -= 1",
        "left_out[_WORDS[decision.verdict.outcome]] = 0",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "duplicates give way to all that is accepted",
        "semel.log.broker.decisions:Decisions.tell",
        "verdict.outcome is ACCEPTED",
        "True",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "a subscriber is told again what it was told before",
        "semel.log.broker.decisions:Decisions.after",
        "decision.number <= number",
        "decision.number < number",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "a quiet stream is not woken by a decision",
        "semel.log.broker.decisions:Decisions.tell",
        "is_awaited = self._accepted_is_awaited",
        "is_awaited = False",
        (f"{_DECISIONS}::test_a_quiet_stream_is_woken_by_the_next_decision_and_a_busy_one_finds_what_fell_meanwhile",),
    ),
    Bug(
        "a duplicate waits as long as an accepted batch",
        "semel.log.broker.decisions:Decisions.tell",
        "is_awaited = self._other_is_awaited",
        "is_awaited = self._accepted_is_awaited",
        (f"{_DECISIONS}::test_an_accepted_batch_can_wait_where_another_verdict_cannot",),
    ),
    Bug(
        "accepted batches are told as soon as duplicates",
        "semel.log.broker.decisions:Subscription.wait",
        "self._fresh(others_only)",
        "self._fresh(False)",
        (f"{_DECISIONS}::test_an_accepted_batch_can_wait_where_another_verdict_cannot",),
    ),
    Bug(
        "a stream waits for the next decision although its subscriber has gone",
        "semel.log.broker.decisions:Subscription.wait",
        "self.has_ended",
        "False",
        (f"{_DECISIONS}::test_a_stream_ends_at_once_when_its_subscriber_went_before_it_waits",),
    ),
    Bug(
        "the name of a topic is written into an event as it is",
        "semel.log.broker.decisions:_as_json",
        "encode_basestring_ascii(topic)",
        "chr(34) + topic + chr(34)",
        (f"{_DECISIONS}::test_an_event_is_one_line_of_json_whatever_stands_in_it",),
    ),
    Bug(
        "decisions are put together when the last who watched has gone",
        "semel.log.broker.decisions:Decisions.unsubscribe",
        "self.is_watched = bool(self._subscriptions)",
        "pass",
        (f"{_DECISIONS}::test_each_subscriber_gets_the_newest_decisions_and_the_number_of_those_left_out",),
    ),
    Bug(
        "a page of another site is told decisions and the windows of producers",
        "semel.log.broker.metrics_server:_check_asker",
        '"origin" in headers or headers.get("sec-fetch-site", "none") != "none"',
        "False",
        (f"{_DECISIONS}::test_no_page_of_a_browser_is_told_a_decision",),
    ),
    Bug(
        "a page under a name that resolves to this machine is told decisions",
        "semel.log.broker.metrics_server:_check_asker",
        "not is_own_host(headers.get('host', ''), names)",
        "False",
        (f"{_DECISIONS}::test_no_page_of_a_browser_is_told_a_decision",),
    ),
    Bug(
        "other machines are told decisions",
        "semel.log.broker.metrics_server:serve_metrics",
        "insecure or is_loopback(host) or login is not None",
        "True",
        (f"{_DECISIONS}::test_other_machines_are_told_decisions_only_where_the_network_is_trusted",),
    ),
    # -- what a store and its brokers tell ----------------------------------------------------------------------------
    Bug(
        "a broker that died passes for active until its lease is over",
        "semel.log.replica.status:_is_active",
        "watch.version == first",
        "False",
        (f"{_STATUS}::test_a_broker_is_active_as_long_as_it_replaces_its_lease",),
    ),
    Bug(
        "a standby that is gone passes for one that is there",
        "semel.log.replica.status:Standby.is_silent",
        "self.seconds_ago > SILENT_SECONDS",
        "False",
        (f"{_STATUS}::test_a_standby_is_as_far_behind_as_its_note_says_and_silent_without_one",),
    ),
    Bug(
        "the active broker is shown as standing by as well",
        "semel.log.replica.status:_standbys",
        "note.nonce == lease.nonce",
        "False",
        (f"{_STATUS}::test_a_standby_is_as_far_behind_as_its_note_says_and_silent_without_one",),
    ),
    Bug(
        "a standby that was started again keeps the note of its earlier life",
        "semel.log.replica.note:NoteKeeper.put",
        "self._version = version",
        "return",
        (f"{_STATUS}::test_a_standby_has_one_note_however_often_it_starts_and_whatever_answers_are_lost",),
    ),
    Bug(
        "two standbys that say one address overwrite each other's note",
        "semel.log.replica.note:NoteKeeper.put",
        "found.nonce != note.nonce",
        "False",
        (f"{_STATUS}::test_two_standbys_that_say_one_address_have_a_note_each",),
    ),
    Bug(
        "a move out of a store leaves its lease behind",
        "semel.log.replica.membership:Membership.leave",
        "await self._holder.release()",
        "pass",
        ("tests/log/replica/test_move.py::test_a_move_out_of_a_store_leaves_neither_a_broker_nor_a_standby_behind",),
    ),
    Bug(
        "a broker that has taken over and is stopped is missed as a standby",
        "semel.log.replica.membership:Membership.leave",
        "await self._note.remove()",
        "if not self._holder.has_claimed: await self._note.remove()",
        (f"{_STATUS}::test_a_broker_that_has_taken_over_and_is_stopped_is_no_standby",),
    ),
    Bug(
        "a standby that was stopped in order is missed",
        "semel.log.broker.role:Role.leave",
        "(is_durable or not self.is_active)",
        "self.epoch",
        (f"{_STATUS}::test_brokers_tell_by_themselves_how_far_they_are",),
    ),
    Bug(
        "slots are not counted",
        "semel.log.replica.writer:SlotWriter._create",
        "self._note_created(loop.time() - began, len(content))",
        "pass",
        ("tests/log/replica/test_store_metrics.py",),
    ),
    # -- the page of decisions ----------------------------------------------------------------------------------------
    Bug(
        "the console listens to the broker when nobody looks any more",
        "semel.ui.console.decisions:DecisionFeed._end_if_unwatched",
        "self._listening.cancel()",
        "pass",
        (f"{_PAGE}::test_the_broker_is_listened_to_only_while_somebody_looks",),
        seconds_max=20,
    ),
    Bug(
        "a duplicate goes under among all that is accepted",
        "semel.ui.console.decisions:DecisionFeed._take",
        'self._newest[decision["outcome"]]',
        'self._newest["accepted"]',
        (f"{_PAGE}::test_a_duplicate_stays_in_sight_among_all_that_is_accepted",),
    ),
    Bug(
        "what a broker told before it was started again stands above what it tells now",
        "semel.ui.console.decisions:DecisionFeed._listen",
        "self._forget()",
        "pass",
        (f"{_PAGE}::test_what_a_broker_told_is_forgotten_when_another_one_answers_in_its_place",),
    ),
    Bug(
        "something else in the place of a broker ends the page of decisions",
        "semel.ui.console.decisions:DecisionFeed._keep_listening",
        "(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)",
        "OSError",
        (f"{_PAGE}::test_whatever_is_said_in_the_place_of_decisions_is_one_line",),
    ),
    # -- what repeats in the log for operators ------------------------------------------------------------------------
    Bug(
        "a client that tries again over a new connection gets a line each time",
        "semel.log.broker.events:_subject",
        'name == "peer"',
        "False",
        (f"{_EVENTS}::test_a_host_that_connects_again_each_time_is_one_and_the_same",),
    ),
    Bug(
        "what goes on for ever is told as if it began each minute",
        "semel.log.broker.events:Events._same",
        "1 if same.left_out else FIRST_LINES",
        "FIRST_LINES",
        (f"{_EVENTS}::test_a_client_that_tries_again_for_ever_gets_a_line_in_a_minute",),
    ),
    Bug(
        "a flood of names fills the memory of what was told",
        "semel.log.broker.events:Events._same",
        "del self._repeated[next(iter(self._repeated))]",
        "pass",
        (f"{_EVENTS}::test_names_without_end_take_no_memory_without_end",),
    ),
    # -- what runs out ------------------------------------------------------------------------------------------------
    Bug(
        "only the broker's own certificate is seen to expire, and not the one that signed it",
        "semel.log.broker.certificates:_expiry",
        "min((expiry_of(ssl.PEM_cert_to_DER_cert(one)) for one in found), default=None)",
        "max((expiry_of(ssl.PEM_cert_to_DER_cert(one)) for one in found), default=None)",
        (f"{_RUNS_OUT}::test_the_certificate_of_a_chain_that_expires_first_counts",),
    ),
    Bug(
        "a certificate that is valid after 2049 does not say until when",
        "semel.log.security.names:expiry_of",
        "_TIMES[until.tag]",
        "_TIMES[0x17]",
        (f"{_RUNS_OUT}::test_a_certificate_says_when_it_expires",),
    ),
)
