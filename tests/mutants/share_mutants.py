"""Mutants of share groups: their records, their sessions, and what an operator is told of them."""

from typing import Final

from saboteurs.planting import Bug

_PARTITION: Final = "tests/log/core/groups/test_share_partition.py"
_SEVERAL: Final = "tests/log/broker/apis/test_share_partitions.py"
_SESSIONS: Final = "tests/log/broker/test_share_sessions.py"
_FETCH: Final = "semel.log.broker.apis.share_fetch"
_COORDINATOR: Final = "semel.log.broker.share_groups:ShareGroupCoordinator"
_SHARE_SESSIONS: Final = "semel.log.broker.share_sessions:ShareSessions"

SHARE_MUTANTS: Final[tuple[Bug, ...]] = (
    Bug(
        "a record that compaction removes is taken from its holder",
        "semel.log.core.groups.share_partition:SharePartition._gone",
        "state.kind == AVAILABLE",
        "state.kind != DONE",
        (_PARTITION, "-k", "compaction_removes"),
    ),
    Bug(
        "what compaction has removed between two batches waits for ever",
        "semel.log.core.groups.share_partition:SharePartition.decide_acquire",
        "result.changes.extend(self._gone(at, first - 1))",
        "pass",
        (_PARTITION, "-k", "compaction_has_removed"),
    ),
    Bug(
        "records between the end and what was read are never delivered",
        "semel.log.core.groups.share_partition:SharePartition.decide_acquire",
        "at > max(self.end, log_start)",
        "False",
        (_PARTITION, "-k", "passed_over"),
    ),
    Bug(
        "a member gets as many records as it asks for in each partition",
        f"{_COORDINATOR}.acquire",
        "left -= _count_of(outcome.held)",
        "pass",
        (_SEVERAL, "-k", "no_more_records"),
    ),
    Bug(
        "each request of a member begins with the same partition",
        "semel.log.broker.share_sessions:ShareSession.in_turn",
        "places[at:] + places[:at]",
        "places",
        (_SEVERAL, "-k", "behind_another"),
    ),
    Bug(
        "a word that is refused hides those about other partitions",
        f"{_COORDINATOR}.acknowledge",
        "outcome = partition.decide_acknowledge(session, acks[name], rules)",
        "outcome = partition.decide_acknowledge(session, acks[name], rules) if not refused else _NO_CHANGE",
        (_SEVERAL, "-k", "said_of_one"),
    ),
    Bug(
        "a group begins anew in the first partition alone",
        "semel.log.broker.apis.delete_share_group_offsets:_delete",
        "[ShareStart(topic.number, index, -1) for index in indexes]",
        "[ShareStart(topic.number, index, -1) for index in indexes[:1]]",
        (_SEVERAL, "-k", "begins_anew"),
    ),
    Bug(
        "a partition that a member forgets is read on",
        f"{_FETCH}:_ShareFetch.begin",
        "groups.sessions.forget(self._session, [(topic.topic_id, index) for index in topic.partitions])",
        "pass",
        (_SEVERAL, "-k", "member_forgets"),
    ),
    Bug(
        "locks last as long as the broker says, whatever the group says",
        f"{_COORDINATOR}._commit_states",
        "self.share_rules_of(group).lock_ms",
        "self._group_rules.shares.lock_ms",
        (_SEVERAL, "-k", "as_the_group_says"),
    ),
    Bug(
        "a member is told the broker's lock time",
        f"{_FETCH}:_ShareFetch._answer",
        "broker.share_groups.share_rules_of(self._who.group).lock_ms",
        "30_000",
        (_SEVERAL, "-k", "as_the_group_says"),
    ),
    Bug(
        "a shorter lock times out with the longer one before it",
        "semel.log.core.groups.share_partition:SharePartition.hold",
        "self._no_deadline_before_ms is None or until_ms < self._no_deadline_before_ms",
        "self._no_deadline_before_ms is None",
        (_SEVERAL, "-k", "shorter"),
    ),
    Bug(
        "a lost connection releases the records of one group",
        f"{_COORDINATOR}.end_sessions_of",
        "of_groups.items()",
        "list(of_groups.items())[:1]",
        (_SEVERAL, "-k", "all_groups"),
    ),
    Bug(
        "a group that begins some time ago begins at the end",
        f"{_FETCH}:_ShareFetch._start_of",
        "place.offset if place.offset >= 0 else latest",
        "latest",
        (_SEVERAL, "-k", "as_long_ago"),
    ),
    Bug(
        "a session without its partitions keeps its place",
        f"{_FETCH}:_ShareFetch.begin",
        "yield from groups.end_session(self._session)\nraise added",
        "raise added",
        (_SEVERAL, "-k", "leaves_its_place"),
    ),
    Bug(
        "a group of all records waits for the end of transactions",
        f"{_FETCH}:_until",
        "partition.stable if rules.committed_only else partition.readable",
        "partition.stable",
        ("tests/log/broker/apis/test_share_fetch.py", "-k", "aborted"),
    ),
    Bug(
        "all that follows an aborted transaction of a producer is aborted",
        f"{_FETCH}:_reads",
        "open_now.discard(header.producer_id)",
        "pass",
        ("tests/log/broker/apis/test_share_fetch.py", "-k", "aborted"),
    ),
    Bug(
        "a share partition is described before the start of its log",
        "semel.log.broker.apis.describe_share_group_offsets:_described",
        "max(partition.start, of_log.state.log_start)",
        "partition.start",
        ("tests/log/broker/apis/test_describe_share_group_offsets.py", "-k", "where_its_log_does"),
    ),
    Bug(
        "a user goes on with the session of another",
        f"{_SHARE_SESSIONS}.next",
        "self.check_owner(name, owner)",
        "pass",
        (_SESSIONS,),
    ),
    Bug(
        "after the last epoch of a session comes one that begins another",
        f"{_SHARE_SESSIONS}.next",
        "session.epoch + 1 if session.epoch < EPOCH_LAST else 1",
        "session.epoch + 1 if session.epoch < EPOCH_LAST else 0",
        (_SESSIONS,),
    ),
    Bug(
        "what a session forgets keeps its space",
        f"{_SHARE_SESSIONS}.forget",
        "self._note_count(session.address, len(session.places) - before)",
        "pass",
        (_SESSIONS,),
    ),
)
