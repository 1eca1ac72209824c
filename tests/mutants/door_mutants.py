"""Mutants of the doors between rooms: Django, requests without a key, planned takeovers, groups of the new protocol,
moves, messages, and what Spark hands over."""

from typing import Final

from saboteurs.planting import Bug

_MIDDLEWARE: Final = "tests/http/test_django_middleware.py"
_UNKEYED: Final = "tests/http/test_unkeyed.py"
_RESIGNING: Final = "tests/log/replica/test_resigning.py"
_GROUPS: Final = "tests/log/broker/apis/test_consumer_groups.py"
_MIGRATION: Final = "tests/log/broker/apis/test_consumer_group_migration.py"
_DURABLE: Final = "tests/log/broker/apis/test_durable_answers.py"
_PROGRESS: Final = "tests/ui/transfer/test_move_progress.py"
_MESSAGES: Final = "tests/wire/test_messages.py"
_VERSIONS: Final = "tests/spark/test_versions.py"
_STREAM: Final = "tests/spark/source/test_source_stream.py"
_ROWS: Final = "tests/spark/lanes/test_lane_rows.py"

DOOR_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- Django's middleware -------------------------------------------------------------------------------------------
    Bug(
        "Django's middleware does not measure a body that says no length",
        "semel.http.django.middleware:IdempotencyMiddleware._holder",
        "self._idempotency.check_request_bytes(len(body))",
        "pass",
        (_MIDDLEWARE, "-k", "does_not_say_its_length and sqlite"),
    ),
    Bug(
        "Django's middleware reads a body before it refuses it",
        "semel.http.django.middleware:IdempotencyMiddleware._holder",
        "self._idempotency.check_request_bytes(int(length) if length.isdigit() else 0)",
        "pass",
        (_MIDDLEWARE, "-k", "before_it_is_read and sqlite"),
    ),
    Bug(
        "Django's middleware takes a request with another query for the same",
        "semel.http.django.middleware:IdempotencyMiddleware._holder",
        "query.encode('latin-1', 'replace')",
        "b''",
        (_MIDDLEWARE, "-k", "another_query and sqlite"),
    ),
    Bug(
        "Django's middleware takes a request below another mount for the same",
        "semel.http.django.middleware:IdempotencyMiddleware._holder",
        "request.path.encode('utf-8', 'surrogateescape')",
        "request.path_info.encode('utf-8', 'surrogateescape')",
        (_MIDDLEWARE, "-k", "another_query and sqlite"),
    ),
    Bug(
        "Django's middleware holds patterns against the path with its mount",
        "semel.http.django.middleware:_request",
        "request.path_info",
        "request.path",
        (_MIDDLEWARE, "-k", "below_the_mount and sqlite"),
    ),
    Bug(
        "Django's middleware keeps a stream of events",
        "semel.http.django.middleware:IdempotencyMiddleware._kept",
        "response.streaming or streams(headers) or len(response.content) > self._idempotency.answer_bytes_max",
        "response.streaming or len(response.content) > self._idempotency.answer_bytes_max",
        (_MIDDLEWARE, "-k", "endless and sqlite"),
    ),
    Bug(
        "Django's middleware keeps an answer however large it is",
        "semel.http.django.middleware:IdempotencyMiddleware._kept",
        "response.streaming or streams(headers) or len(response.content) > self._idempotency.answer_bytes_max",
        "response.streaming or streams(headers)",
        (_MIDDLEWARE, "-k", "endless and sqlite"),
    ),
    Bug(
        "Django's middleware leaves a response open that it does not send",
        "semel.http.django.middleware:IdempotencyMiddleware._execute",
        "if instead is not None: ...",
        "if instead is not None: return _response(instead)",
        (_MIDDLEWARE, "-k", "is_closed and sqlite"),
    ),
    Bug(
        "Django's middleware says of an answer that is not kept how long it is kept",
        "semel.http.django.middleware:IdempotencyMiddleware._execute",
        "fate is not Fate.FORGOTTEN",
        "True",
        (_MIDDLEWARE, "-k", "executed_again and sqlite"),
    ),
    Bug(
        "Django's middleware holds a key whose view has failed",
        "semel.http.django.middleware:IdempotencyMiddleware._run",
        "drive(holder.release())",
        "pass",
        (_MIDDLEWARE, "-k", "executed_again and sqlite"),
    ),
    Bug(
        "Django's middleware commits into a transaction that somebody else may roll back",
        "semel.http.django.atomic:_Transaction._transaction",
        "durable=True",
        "durable=False",
        (_MIDDLEWARE, "-k", "roll_its_effect_back and sqlite"),
    ),
    # -- requests without a key ----------------------------------------------------------------------------------------
    Bug(
        "a GET that deletes an object is answered as if it had",
        "semel.http.unkeyed:_check_unchanged",
        "session.new or session.deleted",
        "session.new",
        (_UNKEYED, "-k", "deletes_an_object and sqlite"),
    ),
    Bug(
        "a transaction that begins after its request has ended stays open",
        "semel.http.unkeyed:Unkeyed._begin",
        "if self._has_ended: yield self._transaction.roll_back()",
        "",
        (_UNKEYED, "-k", "left_to_nobody and sqlite"),
    ),
    Bug(
        "a TRACE may change something",
        "semel.http.unkeyed:SAFE_METHODS",
        "'TRACE'",
        "",
        (_UNKEYED, "-k", "safe_only_reads and sqlite"),
    ),
    Bug(
        "requests wait for the lock of a database with one writer",
        "semel.steps.transactions:transactions_max",
        "TRANSACTIONS_MAX_ONE_WRITER if has_one_writer else TRANSACTIONS_MAX",
        "TRANSACTIONS_MAX",
        (_UNKEYED, "-k", "their_turn and sqlite"),
    ),
    # -- a planned takeover --------------------------------------------------------------------------------------------
    Bug(
        "a broker that has claimed the lease is said to be active",
        "semel.log.replica.resignation:have_resign",
        "lease.nonce != asked.nonce and lease.is_active",
        "lease.nonce != asked.nonce",
        (_RESIGNING,),
    ),
    Bug(
        "another broker than the one that was seen is asked to resign",
        "semel.log.replica.resignation:_ask",
        "asked.nonce != known.nonce or not asked.is_active",
        "not asked.is_active",
        (_RESIGNING,),
    ),
    Bug(
        "a lease that was released gets the wish to resign",
        "semel.log.replica.resignation:_ask",
        "not asked.is_active",
        "False",
        (_RESIGNING,),
    ),
    # -- groups of the new protocol ------------------------------------------------------------------------------------
    Bug(
        "configurations of a group that are only tried are set",
        "semel.log.broker.consumer_groups:ConsumerGroupCoordinator.configure",
        "canonical_configs == groups.configs_of(name) or validate_only",
        "canonical_configs == groups.configs_of(name)",
        (_GROUPS, "-k", "only_tried"),
    ),
    Bug(
        "members that do not come back after a restart are never missed",
        "semel.log.broker.assigned_groups:AssignedGroupCoordinator.begin",
        "group.machine.hear_all(self.rules_of(group.name), self._runtime.clock.steady_ms())",
        "pass",
        (_GROUPS, "-k", "whole_session"),
    ),
    Bug(
        "no deadline of a group is noted when a broker starts",
        "semel.log.broker.assigned_groups:AssignedGroupCoordinator.begin",
        "self._note_deadline(group.name, group.machine)",
        "pass",
        (_GROUPS, "-k", "whole_session"),
    ),
    Bug(
        "the memory of the members that a start has found is not counted",
        "semel.log.broker.assigned_groups:AssignedGroupCoordinator.begin",
        "self._members.note_size(group.name, group.machine.size_bytes)",
        "pass",
        (_GROUPS, "-k", "counts_by_itself"),
    ),
    Bug(
        "the members of one group may take the memory of all",
        "semel.log.broker.assigned_groups:AssignedGroupCoordinator._check_size",
        "more_bytes > 0 and machine.size_bytes + more_bytes > self._runtime.limits.group_bytes_max",
        "False",
        (_GROUPS, "-k", "counts_by_itself"),
    ),
    Bug(
        "a member hears of partitions before that is durable",
        "semel.log.broker.assigned_groups:AssignedGroupCoordinator._heartbeat",
        "self._changed.get(name, 0)",
        "0",
        (_DURABLE, "-k", "no_member_hears"),
    ),
    Bug(
        "a member hears that it has left before that is durable",
        "semel.log.broker.assigned_groups:AssignedGroupCoordinator._heartbeat",
        "self._runtime.log.end",
        "0",
        (_DURABLE, "-k", "no_member_hears"),
    ),
    Bug(
        "classic members that wait are not told that their group has gone over",
        "semel.log.broker.consumer_groups:ConsumerGroupCoordinator._append",
        "self.classic.hand_over(machine_before)",
        "pass",
        (_MIGRATION, "-k", "goes_over_joins_anew"),
    ),
    Bug(
        "a classic member that asks for its share is not heard",
        "semel.log.broker.consumer_groups:ConsumerGroupCoordinator.sync",
        "machine.hear(request.member_id, self.rules_of(name), self._runtime.clock.steady_ms())",
        "pass",
        (_MIGRATION, "-k", "its_share"),
    ),
    Bug(
        "a classic member that is to join again is not heard",
        "semel.log.broker.consumer_groups:ConsumerGroupCoordinator.classic_heartbeat",
        "if refused.error == REBALANCE_IN_PROGRESS: ...",
        "",
        (_MIGRATION, "-k", "rebalance_timeout"),
    ),
    Bug(
        "a classic member need never join again",
        "semel.log.broker.consumer_groups:ConsumerGroupCoordinator.classic_heartbeat",
        "machine.expect_to_join(member_id, now_ms)",
        "pass",
        (_MIGRATION, "-k", "rebalance_timeout"),
    ),
    # -- moves, messages and Spark -------------------------------------------------------------------------------------
    Bug(
        "progress of a move is read while its last transaction is open",
        "semel.ui.transfer.progress:read_progress",
        "if client.offsets([progress.where], LATEST, Isolation.READ_COMMITTED)[progress.where] == end: break",
        "break",
        (_PROGRESS, "-k", "has_ended"),
    ),
    Bug(
        "progress of a move that does not fit into a batch is left out",
        "semel.ui.transfer.progress:_batches",
        """yield batch
batch, size = [], len(body.content)""",
        "batch, size = [], len(body.content)",
        (_PROGRESS, "-k", "too_large"),
    ),
    Bug(
        "a move keeps its progress in a topic that forgets it",
        "semel.ui.transfer.topics:progress_topic",
        'if target.config_of(name, "cleanup.policy") != TOPIC_CONFIGS["cleanup.policy"]: ...',
        "",
        (_PROGRESS, "-k", "in_time"),
    ),
    Bug(
        "a text may be missing in every later version as well",
        "semel.wire.message:field",
        "Field(kind, False, since, until, null_since, null_until, tag, default)",
        "Field(kind, False, since, until, null_since, NEVER, tag, default)",
        (_MESSAGES, "-k", "may_be_missing"),
    ),
    Bug(
        "whatever keeps a source from being made known is passed over",
        "semel.spark.versions:register",
        "error.getCondition() != 'DATA_SOURCE_ALREADY_EXISTS'",
        "False",
        (_VERSIONS, "-k", "found_itself"),
    ),
    Bug(
        "an older Spark gets each row into the partition of another number",
        "semel.spark.versions:partitioned_by_number",
        "sf.col(column) + 1",
        "sf.col(column)",
        (_VERSIONS, "-k", "of_its_number"),
    ),
    Bug(
        "a least size of batches without a greatest is no limit",
        "semel.spark.source.limited_stream:LimitedStreamReader.getDefaultReadLimit",
        "if self._options.offsets_min is not None: ...",
        "",
        (_STREAM, "-k", "least_size"),
    ),
    Bug(
        "a task writes without knowing its query",
        "semel.spark.lanes.stream_writer:batch_of_the_task",
        "not query_id or batch_id is None or not batch_id.isdigit()",
        "batch_id is None or not batch_id.isdigit()",
        (_ROWS, "-k", "knows_its_query"),
    ),
    Bug(
        "a task writes without knowing its batch",
        "semel.spark.lanes.stream_writer:batch_of_the_task",
        "not query_id or batch_id is None or not batch_id.isdigit()",
        "not query_id or batch_id is None",
        (_ROWS, "-k", "knows_its_query"),
    ),
)
