"""The planted bugs of standbys that Metadata names: what would keep a client from the next broker, or disturb it."""

from typing import Final

from saboteurs.planting import Bug

_ANSWERS: Final = "tests/replica/test_standby_answers.py"
_FULL_DISK: Final = "tests/replica/test_standby_on_full_disk.py"
_HANDING_OVER: Final = "tests/replica/test_handing_over.py"
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
        "a broker that has just become active names no standby",
        "semel.replica.membership:Membership.take_over",
        "self._look_for_standbys()",
        "asyncio.sleep(0)",
        (f"{_STATUS}::test_a_broker_knows_the_other_standbys_when_it_becomes_active",),
    ),
    Bug(
        "a broker that was active is taken for a standby when it is lost",
        "semel.replica.membership:Membership._watch_standbys",
        "await self._note.remove()",
        "pass",
        (f"{_ANSWERS}::test_a_standby_is_named_while_it_runs_and_one_that_was_lost_is_not",),
    ),
    Bug(
        "a standby ends at its takeover, because the disk is full of what it printed",
        "semel.cli.display:tell",
        "OSError",
        "EOFError",
        ("tests/cli/test_serve.py::test_a_line_that_nobody_can_read_ends_no_server",),
    ),
    Bug(
        "a standby that died is named to clients for ever",
        "semel.replica.note:NoteWatch.look",
        "now - changed <= SILENT_SECONDS",
        "True",
        (f"{_STATUS}::test_a_standby_is_named_to_clients_while_its_note_changes",),
    ),
    Bug(
        "every client is told of a port that is none, because one note has it",
        "semel.replica.lease:decode_addresses",
        "not 0 <= port <= _PORT_MAX",
        "False",
        (f"{_STATUS}::test_a_note_that_no_standby_wrote_is_shown_to_nobody_and_disturbs_nobody",),
    ),
    Bug(
        "an active broker looks for standbys no more, because one note is damaged",
        "semel.replica.note:decode_note",
        "UNREADABLE",
        "ValueError",
        (f"{_STATUS}::test_a_note_that_no_standby_wrote_is_shown_to_nobody_and_disturbs_nobody",),
    ),
    Bug(
        "the notes of all standbys that ever died are read again and again",
        "semel.replica.note:NoteWatch.look",
        "await self._store.delete(key)",
        "pass",
        (f"{_STATUS}::test_the_note_of_a_standby_that_disappeared_is_removed_after_a_day",),
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
        "not exchange.connection.is_of_a_standby",
        "True",
        (
            f"{_ANSWERS}::test_a_standby_whose_active_broker_seems_to_be_itself_does_not_forward_for_ever",
            f"{_ANSWERS}::test_two_standbys_that_take_each_other_for_the_active_broker_do_not_forward_for_ever",
        ),
    ),
    Bug(
        "a client is given the answer to another request",
        "semel.broker.forwarder:Forwarder._frame",
        "parse_response_header(api_key, version, memoryview(frame)[SIZE_BYTES:])[0] != number",
        "False",
        (f"{_ANSWERS}::test_a_standby_answers_by_itself_when_what_comes_is_no_answer",),
    ),
    Bug(
        "a standby forwards as much at once as its clients ask for, though it has no files left",
        "semel.broker.forwarder:Forwarder.takes",
        "len(self._tasks) >= self._under_way_max",
        "False",
        ("tests/broker/test_open_files.py", "-k", "than_it_has_sockets_for"),
    ),
    Bug(
        "the sockets with which a standby forwards are not counted",
        "semel.broker.open_files:shares_of_open_files",
        "free - segments_max - forwarded_max - others",
        "free - segments_max - others",
        ("tests/broker/test_open_files.py", "-k", "standby_forwards"),
    ),
    Bug(
        "one request that the active broker does not know keeps a standby from forwarding those of others",
        "semel.broker.forwarder:Forwarder.forward",
        "isinstance(error, CannotReach)",
        "error is not None",
        (f"{_ANSWERS}::test_a_standby_answers_by_itself_when_what_comes_is_no_answer",),
    ),
    Bug(
        "every client waits for an active broker that cannot be reached",
        "semel.broker.forwarder:Forwarder.forward",
        "isinstance(error, CannotReach)",
        "False",
        (f"{_ANSWERS}::test_a_standby_does_not_make_each_client_wait_for_an_active_broker_that_cannot_be_reached",),
    ),
    Bug(
        "a standby forwards all requests of a client at once, in any order",
        "semel.broker.broker:Broker.serve",
        "self._forwarder.forward("
        "address, exchange, copy, lambda: self._serve_here(exchange, memoryview(copy), done), done)",
        "(self._forwarder.forward("
        "address, exchange, copy, lambda: self._serve_here(exchange, memoryview(copy), lambda: None), lambda: None)"
        ", done())",
        (f"{_ANSWERS}::test_the_requests_of_one_client_are_done_in_their_order",),
    ),
    Bug(
        "a standby forwards the requests of clients that the active broker has to know",
        "semel.broker.broker:Broker._may_forward",
        "self._access_rules or self.doors.need_access_rules",
        "False",
        (f"{_ANSWERS}::test_a_standby_answers_by_itself_where_clients_have_to_log_in",),
    ),
    Bug(
        "a broker that stops closes its ports before another one is active",
        "semel.broker.broker:Broker.stop",
        "self.role.may_hand_over and not self.failed.done()",
        "False",
        (f"{_HANDING_OVER}::test_clients_hear_where_to_go_before_the_port_is_closed",),
    ),
    Bug(
        "a broker that hands over goes on serving, so that there is always something under way",
        "semel.broker.role:Role.may_serve",
        "self._leads",
        "True",
        (f"{_HANDING_OVER}::test_what_is_under_way_is_durable_before_the_lease_is_given_away",),
    ),
    Bug(
        "a broker gives its lease away while changes are under way",
        "semel.broker.broker:Broker._has_nothing_under_way",
        "self.turns.is_idle and not self.pump.is_waited_for and is_durable",
        "True",
        (f"{_HANDING_OVER}::test_what_is_under_way_is_durable_before_the_lease_is_given_away",),
    ),
    Bug(
        "a broker that has given its lease away creates topics",
        "semel.broker.role:Role.is_active",
        "self._active is None",
        "True",
        (f"{_HANDING_OVER}::test_nothing_changes_any_more_while_the_lease_is_given_away",),
    ),
    Bug(
        "a fetch waits while its broker hands over",
        "semel.broker.broker:Broker._hand_over",
        "connection.hurry()",
        "None",
        (f"{_HANDING_OVER}::test_a_fetch_that_waits_is_answered_when_the_broker_begins_to_stop",),
    ),
    Bug(
        "a broker that stops waits for a standby that has stopped before",
        "semel.broker.broker:Broker._hand_over",
        "await self.role.finds_standby()",
        "True",
        (f"{_HANDING_OVER}::test_a_broker_whose_standby_has_stopped_waits_for_nobody",),
    ),
    Bug(
        "a broker that has handed over ends as fenced, because somebody asks it something",
        "semel.broker.role:Role.hand_over",
        "self._writer.close()",
        "None",
        (f"{_HANDING_OVER}::test_a_question_after_the_next_broker_is_active_fences_nobody",),
    ),
    Bug(
        "a broker that has handed over ends as fenced, because a checkpoint was under way",
        "semel.broker.role:Role.hand_over",
        "self._checkpoints.give_up()",
        "None",
        (f"{_HANDING_OVER}::test_a_checkpoint_under_way_does_not_fail_a_broker_that_has_handed_over",),
    ),
    Bug(
        "one call that the store does not answer ends a handover",
        "semel.replica.membership:Membership.hand_over",
        "answered(self._holder.release)",
        "self._holder.release()",
        (f"{_HANDING_OVER}::test_one_call_that_is_not_answered_does_not_end_the_handover[replace]",),
    ),
    Bug(
        "clients are sent to a broker that has stopped before it became active",
        "semel.replica.lease:Lease.is_active",
        "self.position >= 0 and not self.is_released",
        "True",
        (f"{_HANDING_OVER}::test_a_broker_that_stops_while_it_takes_over_gives_its_claim_to_the_next_one",),
    ),
    Bug(
        "a broker that stops while it takes over keeps the lease",
        "semel.replica.membership:Membership.leave",
        "self._holder.has_claimed",
        "False",
        (f"{_HANDING_OVER}::test_a_broker_that_stops_while_it_takes_over_gives_its_claim_to_the_next_one",),
    ),
    Bug(
        "a standby on a full disk ends",
        "semel.replica.reader:SlotReader._replay",
        "error.errno not in TRIED_AGAIN or self._make_room is None",
        "True",
        (f"{_FULL_DISK}::test_it_goes_on_when_there_is_space",),
    ),
    Bug(
        "a standby on a full disk keeps its claim, and nobody takes over",
        "semel.replica.membership:Membership.take_over",
        "await self._holder.release()",
        "pass",
        (f"{_FULL_DISK}::test_one_that_has_claimed_the_lease_and_cannot_read_the_rest_leaves_it_to_another",),
    ),
    Bug(
        "a broker that stops releases the lease of the one that has taken over",
        "semel.replica.lease:LeaseHolder.renew",
        "return False",
        "self._version = version; return False",
        ("tests/replica/test_lease.py::test_a_broker_that_has_lost_its_claim_does_not_release_the_lease_of_another",),
    ),
    Bug(
        "a standby on a full disk waits for ever behind a checkpoint that would make room",
        "semel.replica.reader:SlotReader.read_on",
        "self._refusals > 1",
        "False",
        (f"{_FULL_DISK}::test_one_that_a_checkpoint_has_overtaken_ends_to_start_from_that",),
    ),
    Bug(
        "an entry is applied twice when there is space again",
        "semel.replica.reader:SlotReader._read_next",
        "islice(entries(slot, body), self._applied, None)",
        "entries(slot, body)",
        (f"{_FULL_DISK}::test_it_goes_on_when_there_is_space",),
    ),
    Bug(
        "a broker fences who took over while its own takeover was held up",
        "semel.replica.lease:LeaseHolder.keeps_claim",
        "self.is_held(now) or await self.renew(self._next.epoch, now, self._next.position)",
        "True",
        (
            "tests/replica/test_store_away.py::"
            "test_a_broker_that_was_cut_off_while_it_took_over_does_not_fence_who_did_so_meanwhile",
        ),
    ),
    Bug(
        "a standby that is behind reads one slot after the other",
        "semel.replica.reader:_ReadAhead.get",
        "self._found > 1",
        "False",
        ("tests/replica/test_read_ahead.py", "-k", "that_is_behind"),
    ),
    Bug(
        "a standby that is not behind asks for slots that are not there",
        "semel.replica.reader:_ReadAhead.get",
        "self._found > 1",
        "True",
        ("tests/replica/test_read_ahead.py", "-k", "not_behind"),
    ),
)
