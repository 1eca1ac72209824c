"""The planted bugs of share groups."""

from typing import Final

from saboteurs.planting import Bug

_PARTITION: Final = "tests/log/core/groups/test_share_partition.py"
_MODEL: Final = (f"{_PARTITION}::test_it_is_a_table_with_a_line_for_each_record",)
_FETCH: Final = "tests/log/broker/apis/test_share_fetch.py"
_HOSTILE: Final = "tests/log/broker/test_hostile_sharers.py"
_SIM: Final = "tests/sim/test_sharers.py::test_no_record_is_lost_or_comes_again_when_it_is_done"
_GROUPS: Final = "semel.log.broker.share_groups"
_RULES: Final = "semel.log.core.groups.share_partition"

SHARE_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a record is delivered once more than the group allows",
        f"{_RULES}:_released",
        "state.deliveries < rules.deliveries_max",
        "state.deliveries <= rules.deliveries_max",
        _MODEL,
    ),
    Bug(
        "a delivery is not counted",
        f"{_RULES}:SharePartition._acquirable",
        "state.deliveries + 1",
        "max(state.deliveries, 1)",
        _MODEL,
    ),
    Bug(
        "a member acknowledges what another holds",
        f"{_RULES}:SharePartition.decide_acknowledge",
        "state.kind != ACQUIRED or state.holder != holder",
        "state.kind != ACQUIRED",
        _MODEL,
    ),
    Bug(
        "a record that is done is acknowledged again",
        f"{_RULES}:SharePartition.decide_acknowledge",
        "state.kind != ACQUIRED or state.holder != holder",
        "state.kind == AVAILABLE",
        _MODEL,
    ),
    Bug(
        "a rejected record comes again",
        f"{_RULES}:SharePartition.decide_acknowledge",
        "word == RELEASE",
        "word in (RELEASE, REJECT)",
        _MODEL,
    ),
    Bug(
        "aborted records are delivered",
        f"{_RULES}:SharePartition.decide_acquire",
        "if is_visible: ...\nelse: ...",
        "if True: ...\nelse: ...",
        _MODEL,
    ),
    Bug(
        "the window grows without bound",
        f"{_RULES}:SharePartition.decide_acquire",
        "start + rules.locks_max",
        "start + 2 * rules.locks_max",
        _MODEL,
    ),
    Bug(
        "a strict limit takes a whole batch",
        f"{_RULES}:_Budget.__init__",
        "wish.is_strict",
        "False",
        _MODEL,
    ),
    Bug(
        "a suspect is delivered with others the last time",
        f"{_RULES}:_Budget.take",
        "self._rules.deliveries_max - 1",
        "self._rules.deliveries_max",
        (f"{_PARTITION}::test_suspects_are_delivered_with_ever_fewer_others_and_at_last_alone",),
    ),
    Bug(
        "a released record is looked for behind itself",
        f"{_RULES}:SharePartition.apply",
        "self._no_available_before = min(self._no_available_before, max(first, self.start))",
        "pass",
        _MODEL,
    ),
    Bug(
        "the start stays where it is",
        f"{_RULES}:SharePartition.apply",
        "self._states[count].kind == DONE",
        "False",
        _MODEL,
    ),
    Bug(
        "what is left of a run is lost when its beginning changes",
        f"{_RULES}:SharePartition._set",
        "[(last + 1, states[stop - 1])] if is_cut else []",
        "[]",
        _MODEL,
    ),
    Bug(
        "a lock that is renewed times out as before",
        f"{_RULES}:SharePartition.decide_acknowledge",
        "(result.held if word == RENEW else result.changes).append(after)",
        "word == RENEW or result.changes.append(after)",
        _MODEL,
    ),
    Bug(
        "a lock times out before its time",
        f"{_RULES}:SharePartition.decide_overdue",
        "state.until_ms <= now_ms",
        "state.until_ms <= now_ms + 50",
        _MODEL,
    ),
    Bug(
        "one of two locks never times out",
        f"{_RULES}:SharePartition.decide_overdue",
        "min(deadlines, default=None)",
        "None",
        _MODEL,
    ),
    Bug(
        "a checkpoint forgets how often a record was delivered",
        f"{_RULES}:SharePartition.snapshot",
        "list(map(itemgetter(1), states))",
        "[1] * len(states)",
        _MODEL,
    ),
    Bug(
        "records that retention deleted hold up the start",
        f"{_RULES}:SharePartition.decide_acquire",
        "max(self.start, log_start)",
        "self.start",
        _MODEL,
    ),
    # -- the broker ---------------------------------------------------------------------------------------------------
    Bug(
        "a kill forgets how often a record was delivered",
        f"{_GROUPS}:ShareGroupCoordinator._commit_states",
        "self._runtime.commit(ShareStatesChanged(group, tuple(changes)))",
        "self._state.apply(ShareStatesChanged(group, tuple(changes)))",
        (f"{_FETCH}::test_what_was_acknowledged_and_how_often_a_record_was_delivered_survive_a_kill",),
    ),
    Bug(
        "what was acquired before a kill stays acquired by nobody",
        f"{_GROUPS}:ShareGroupCoordinator.begin",
        "self._locks.note(group.name, 0)",
        "pass",
        (f"{_FETCH}::test_what_was_acknowledged_and_how_often_a_record_was_delivered_survive_a_kill",),
    ),
    Bug(
        "a lost connection keeps its records",
        f"{_GROUPS}:ShareGroupCoordinator.end_sessions_of",
        "self._runtime.turns.begin(self._release(group, sessions), self._runtime.note_end)",
        "pass",
        (f"{_FETCH}::test_a_lost_connection_releases_what_its_members_hold",),
    ),
    Bug(
        "a renewed lock ends as before",
        f"{_GROUPS}:ShareGroupCoordinator._commit_states",
        "partition.hold(outcome.held, holder, until_ms)",
        "outcome.changes and partition.hold(outcome.held, holder, until_ms)",
        ("tests/log/broker/apis/test_share_acknowledge.py::test_a_lock_is_renewed",),
    ),
    Bug(
        "a fetch that waits is not told of a released record",
        f"{_GROUPS}:ShareGroupCoordinator._commit_states",
        "self._runtime.log.note_moved(of_log)",
        "pass",
        (f"{_FETCH}::test_a_fetch_waits_for_records_and_for_those_that_are_released",),
    ),
    Bug(
        "a share group becomes a classic group when it is empty",
        "semel.log.broker.classic_groups:ClassicGroupCoordinator._joinable",
        "isinstance(group.machine, ShareGroup)",
        "False",
        (
            "tests/log/broker/apis/test_share_group_heartbeat.py::"
            "test_groups_of_other_types_and_share_groups_do_not_become_each_other",
        ),
    ),
    Bug(
        "a group that reads committed records gets aborted ones",
        "semel.log.broker.apis.share_fetch:_reads",
        "header.is_control or is_aborted",
        "header.is_control",
        (f"{_FETCH}::test_aborted_records_are_never_delivered_to_a_group_that_reads_committed_ones",),
    ),
    Bug(
        "a session has any epoch",
        "semel.log.broker.share_sessions:ShareSessions.next",
        "epoch not in (FINAL_EPOCH, session.epoch)",
        "False",
        (f"{_FETCH}::test_a_session_has_epochs_and_an_owner",),
    ),
    Bug(
        "a record gets two words in one request",
        f"{_RULES}:SharePartition.decide_acknowledge",
        "ack.first <= before",
        "False",
        (f"{_PARTITION}::test_no_record_gets_two_words_in_one_request",),
    ),
    Bug(
        "one address gets all share sessions",
        "semel.log.broker.share_sessions:ShareSessions._check_space",
        "not is_within_share(count, limit, in_use, taken)",
        "in_use + count > limit",
        (f"{_HOSTILE}::test_one_address_does_not_get_all_share_sessions",),
    ),
    Bug(
        "a member acquires records for a session that has ended",
        f"{_GROUPS}:ShareGroupCoordinator.acquire",
        "session.is_over",
        "False",
        (f"{_HOSTILE}::test_what_a_member_acquires_while_its_session_ends_is_free_in_the_end",),
    ),
    Bug(
        "a group that has all records in flight stops all others",
        f"{_GROUPS}:ShareGroupCoordinator.acquire",
        "self._records_left() or wish.records_max",
        "self._records_left()",
        (f"{_HOSTILE}::test_a_group_that_has_all_records_in_flight_does_not_stop_another",),
    ),
    Bug(
        "a share partition begins in a topic that is gone",
        f"{_GROUPS}:ShareGroupCoordinator._in_the_log",
        "self._state.catalog.numbered(start.number) is not None",
        "True",
        (f"{_HOSTILE}::test_a_topic_that_goes_while_a_member_looks_for_records_leaves_nothing_behind",),
    ),
    Bug(
        "who watches is told again of what happened to shared records",
        "semel.log.broker.decisions:Decisions.shared_after",
        "len(self._shared) - fresh",
        "0",
        ("tests/log/broker/test_shared_records.py", "-k", "slow"),
    ),
    Bug(
        "records that wait to come again are shown as held",
        "semel.log.broker.shared_records:_told",
        "counts[AVAILABLE]",
        "counts[ACQUIRED]",
        ("tests/log/broker/test_shared_records.py", "-k", "the_broker_tells"),
    ),
    Bug(
        "an archived record is told as released",
        "semel.log.broker.share_groups:ShareGroupCoordinator._let_go",
        "batch.kind != AVAILABLE",
        "False",
        ("tests/log/broker/test_shared_records.py", "-k", "stream"),
    ),
    Bug(
        "a delivery is sent before it is durable",
        "semel.log.broker.apis.share_fetch:_ShareFetch._answer",
        "broker.log.end",
        "0",
        ("tests/log/broker/apis/test_durable_answers.py", "-k", "delivered"),
    ),
    # -- the histories ------------------------------------------------------------------------------------------------
    Bug(
        "a record is given up before its last delivery",
        f"{_RULES}:_released",
        "state.deliveries < rules.deliveries_max",
        "state.deliveries < rules.deliveries_max - 2",
        (f"{_SIM}[0]",),
    ),
    Bug(
        "a member acknowledges what it no longer holds",
        f"{_RULES}:SharePartition.decide_acknowledge",
        "state.kind != ACQUIRED or state.holder != holder",
        "state.kind != ACQUIRED",
        (f"{_SIM}[0]",),
    ),
)
