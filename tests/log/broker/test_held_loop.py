"""Nobody holds the event loop: the largest requests of every API, and how much is done for them in one turn.

Everybody waits for whatever is done in one turn. How long that takes is the machine's business, so it is counted: the
calls that Python makes in one callback of the loop. An element of a message takes some ten of them, and a call less
than a millionth of a second.
"""

import asyncio
import gc
from asyncio import events
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import pytest

import plain_messages as messages
from asking import NEWEST, at, topic_wanted
from profiled import profiled
from semel.log.broker.apis import APIS
from semel.log.broker.broker import Broker
from semel.log.broker.chores import forget_old_offsets, forget_silent_producers
from semel.log.core.access import Operation, ResourceType
from semel.log.core.entries import AccessRule, AccessRulesAdded, OffsetsCommitted, StoredOffset
from semel.log.core.groups.assigned_group import MemberRules
from semel.wire.message import Field
from semel.wire.messages import request_type as request_type_of
from semel.wire.records import encode_batch
from semel.wire.steps import Pace
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_TOPIC_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    METADATA,
    NAMES,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)

# A quarter of what a broker does in one turn: a request need not be as long to be served in as many turns.
PACE = Pace(pieces_per_turn=125, offsets_per_entry_max=125)
# Far above what is done in one turn, and far below what a broker takes.
MANY = 1_000
CALLS_MAX = 7_500
# A depth that no request has.
NOWHERE = -1

BATCH = bytes(encode_batch(at(1)))
TOPIC_FIELDS = ("name", "topic", "topic_name", "resource_name")
FIRST_PRODUCER_ID = 1_000
# What a field has to say for a request to get beyond its first check.
SAID: dict[str, Any] = {
    "acks": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "transactional_id": None,
    "v3_and_below_transactional_id": "",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "instance_id": None,
    "rack_id": None,
    "timestamp": 5,
    "current_leader_epoch": -1,
    "resource_type": 2,
    "session_epoch": -1,
    "max_bytes": 2**20,
    "partition_max_bytes": 2**20,
    "records": BATCH,
    "configuration_keys": None,
    "replication_factor": -1,
    "num_partitions": 1,
    "count": 2,
    "key_type": 0,
    "endpoint_type": 1,
    "cursor": None,
    "response_partition_limit": 2_000,
    "producer_id_filters": [],
    "duration_filter": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 1_000,
    "max_wait_ms": 0,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "member_epoch": 0,
}
# The same for a field that is something else in another request.
SAID_IN: dict[tuple[str, str], Any] = {("ConsumerGroupHeartbeatRequest", "topic_partitions"): None}


class Counter:
    """The most calls that were made in any one callback of the loop."""

    def __init__(self) -> None:
        self.most = 0
        self._calls = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is events.Handle._run.__code__:
            self._calls = 0
        if event in ("call", "c_call"):
            self._calls += 1
            self.most = max(self.most, self._calls)


def filled(struct_type: Any, version: int, many_at: int, depth: int = 0, number: int = 0) -> dict[str, Any]:
    """A request of this type whose arrays are long at one depth, and else have one element."""
    return {
        name: SAID_IN.get((struct_type.__name__, name), value_of(name, field, version, many_at, depth, number))
        for name, field in struct_type.FIELDS.items()
        if field.since <= version < field.until
    }


def value_of(name: str, field: Field, version: int, many_at: int, depth: int, number: int) -> Any:
    if name in SAID and (SAID[name] is not None or field.null_since <= version < field.null_until):
        return SAID[name]
    is_struct = not isinstance(field.kind, str)
    if name in TOPIC_FIELDS and not is_struct:
        return f"t{number}"
    if field.is_array:
        count = MANY if depth == many_at else 1
        if is_struct:
            return [filled(field.kind, version, many_at, depth + 1, index) for index in range(count)]
        return [plain(field.kind, index) for index in range(count)]
    if is_struct:
        return filled(field.kind, version, many_at, depth, number)
    return plain(field.kind, number)


def plain(kind: str, number: int) -> Any:
    if kind == "string":
        return f"t{number}"
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return number.to_bytes(16)
    return number % 2 == 0 if kind == "bool" else number % 100 if kind in ("int8", "int16") else number


def frame_of(api_key: int, version: int, **values: object) -> bytes:
    request = messages.build_request(api_key, version, **values)
    return messages.encode_request(api_key, version, 1, "stranger", request)


@asynccontextmanager
async def stranger(**settings: Any) -> AsyncIterator[tuple[Broker, Callable[[bytes], Any]]]:
    """A broker, and a client of it that has no manners."""
    async with Broker(pace=PACE, **settings) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.listeners[0].port)

        async def ask(frame: bytes) -> bytes:
            writer.write(frame)
            try:
                return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""

        yield broker, ask
        writer.close()


async def answers(broker: Broker, *frames: bytes) -> AsyncIterator[bytes]:
    """What one connection hears when it sends all of these at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.listeners[0].port)
    writer.writelines(frames)
    for _ in frames:
        yield await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    writer.close()


async def most_calls(frame: bytes, *before: bytes) -> int:
    async with stranger() as (_, ask):
        for one in before:
            await ask(one)
        counter = Counter()
        with profiled(counter.note):
            await ask(frame)
        return counter.most


def topics_made(*wanted: tuple[str, int]) -> bytes:
    made = [topic_wanted(name, count) for name, count in wanted]
    return frame_of(CREATE_TOPICS, 7, topics=made, timeout_ms=1000, validate_only=False)


def test_a_topic_of_very_many_partitions_is_made_with_few_calls_for_each() -> None:
    # It is one entry, so there is no step in it.
    count = 4 * MANY
    assert asyncio.run(most_calls(topics_made(("t0", count)))) < 10 * count


def long_depths(request_type: Any, version: int) -> list[int]:
    """Each depth at which a request can be long, and that of the name of a topic of very many partitions."""
    short = filled(request_type, version, NOWHERE)
    depths = {depth for depth in range(3) if filled(request_type, version, depth) != short}
    return sorted(depths | ({1} if names_topics(short) else set()))


def names_topics(said: Any) -> bool:
    if isinstance(said, list):
        return any(names_topics(one) for one in said)
    topic_fields = (*TOPIC_FIELDS, "topic_id")
    return isinstance(said, dict) and any(name in topic_fields or names_topics(said[name]) for name in said)


@pytest.mark.parametrize("api_key", APIS, ids=NAMES.get)
def test_a_request_of_any_api_is_served_in_many_turns(api_key: int) -> None:
    version = NEWEST[api_key]
    request_type = request_type_of(api_key)
    # The first request of an API loads what reads and writes its messages.
    asyncio.run(most_calls(frame_of(api_key, version, **filled(request_type, version, NOWHERE))))
    others = [(f"t{number}", 1) for number in range(1, 50)]
    for many_at in long_depths(request_type, version):
        said = filled(request_type, version, many_at)
        before = [topics_made(("t0", MANY if many_at else 1), *others)] if names_topics(said) else []
        assert asyncio.run(most_calls(frame_of(api_key, version, **said), *before)) < CALLS_MAX, f"at depth {many_at}"


@pytest.mark.parametrize("api_key", [DESCRIBE_ACLS, DELETE_ACLS])
def test_very_many_access_rules_are_shown_and_removed_in_many_turns(api_key: int) -> None:
    rules = tuple(AccessRule(2, f"t{number}", 3, "User:app", "*", 4, 3) for number in range(8 * MANY))
    wanted = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    wanted |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    asked = wanted if api_key == DESCRIBE_ACLS else {"filters": [wanted]}

    async def scenario() -> tuple[int, int]:
        async with stranger(access_rules=True, super_users=["User:ANONYMOUS"]) as (broker, ask):
            broker.runtime.commit(AccessRulesAdded(rules))
            counter = Counter()
            with profiled(counter.note):
                answer = await ask(frame_of(api_key, NEWEST[api_key], **asked))
            return counter.most, len(answer)

    most, answer_bytes = asyncio.run(scenario())
    # An entry that removes five hundred is one step.
    assert most < 2 * CALLS_MAX
    assert answer_bytes > 20 * len(rules)


@pytest.mark.parametrize(
    ("api_key", "asked"),
    [
        (LIST_GROUPS, {}),
        (METADATA, {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}),
        (DESCRIBE_TOPIC_PARTITIONS, {"topics": [], "response_partition_limit": 2_000, "cursor": None}),
    ],
)
def test_what_a_client_may_see_of_very_many_is_looked_up_in_many_turns(api_key: int, asked: dict[str, Any]) -> None:
    may_create = AccessRule(ResourceType.CLUSTER, "kafka-cluster", 3, "User:ANONYMOUS", "*", Operation.CREATE, 3)

    async def scenario() -> tuple[int, int]:
        async with stranger(access_rules=True) as (broker, ask):
            # The first request of an API loads what reads and writes its messages.
            await ask(frame_of(api_key, NEWEST[api_key], **asked))
            broker.runtime.commit(AccessRulesAdded((may_create,)))
            for number in range(4 * MANY):
                offsets = (StoredOffset(1, 0, 7, -1, ""),)
                broker.log.state.groups.apply(OffsetsCommitted(f"g{number}", offsets, -1, broker.clock.now_ms()))
            for begin in range(0, 4 * MANY, MANY):
                await ask(topics_made(*((f"t{number}", 1) for number in range(begin, begin + MANY))))
            assert len(list(broker.log.state.catalog)) == 4 * MANY
            counter = Counter()
            with profiled(counter.note):
                answer = await ask(frame_of(api_key, NEWEST[api_key], **asked))
            return counter.most, len(answer)

    most, answer_bytes = asyncio.run(scenario())
    assert most < CALLS_MAX
    assert answer_bytes < 200, "it sees none of them"


def test_quotas_of_very_many_entities_are_compared_in_many_turns() -> None:
    entries = [
        {"entity": [{"entity_type": "client-id", "entity_name": f"c{number}"}], "ops": []} for number in range(4 * MANY)
    ]
    frame = frame_of(ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=True)
    assert asyncio.run(most_calls(frame)) < CALLS_MAX


def test_more_partitions_than_a_transaction_may_have_are_refused_in_many_turns() -> None:
    topics = [{"name": "t0", "partitions": list(range(8 * MANY))}]
    owner = {"v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0}
    frame = frame_of(ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="t", v3_and_below_topics=topics, **owner)
    assert asyncio.run(most_calls(frame, frame)) < CALLS_MAX


def test_what_a_broker_is_done_with_goes_without_the_collector_of_garbage() -> None:
    async def run() -> set[type]:
        async with Broker() as broker:
            await anext(answers(broker, topics_made(("t0", 2), ("t1", 1))))
            for api_key in APIS:
                if api_key != DELETE_TOPICS:
                    await anext(answers(broker, short(api_key)))
            await anext(answers(broker, short(DELETE_TOPICS)))
            await asyncio.sleep(0)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            gc.set_debug(0)
            return {type(one) for one in gc.garbage}

    def short(api_key: int) -> bytes:
        version = NEWEST[api_key]
        request_type = request_type_of(api_key)
        return frame_of(api_key, version, **filled(request_type, version, NOWHERE))

    gc.collect()
    gc.disable()
    try:
        found = asyncio.run(run())
    finally:
        gc.garbage.clear()
        gc.enable()
    assert [one for one in found if one.__module__.startswith("semel.")] == []


def offsets_committed(count: int) -> bytes:
    partitions = [
        {"partition_index": index, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
        for index in range(count)
    ]
    committer = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return frame_of(OFFSET_COMMIT, 9, group_id="g", topics=[{"name": "t0", "partitions": partitions}], **committer)


def last_offset_fetched(count: int) -> bytes:
    topics = [{"name": "t0", "partition_indexes": [count - 1]}]
    return frame_of(OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=False)


async def test_the_next_request_of_a_connection_sees_all_that_a_long_one_did() -> None:
    async with stranger() as (broker, ask):
        await ask(topics_made(("t0", MANY)))
        both = [frame async for frame in answers(broker, offsets_committed(MANY), last_offset_fetched(MANY))]
        fetched = messages.decode_response(OFFSET_FETCH, 7, both[1][5:])
        assert fetched.topics[0].partitions[0].committed_offset == 7
        committed = messages.decode_response(OFFSET_COMMIT, 9, both[0][5:])
        assert [one.error_code for one in committed.topics[0].partitions] == [0] * MANY


async def test_others_are_served_while_a_long_request_is() -> None:
    async with stranger() as (broker, ask):
        await ask(topics_made(("t0", MANY)))
        long = answers(broker, offsets_committed(MANY))
        heard: list[str] = []

        async def hear(name: str, what: AsyncIterator[bytes]) -> None:
            await anext(what)
            heard.append(name)

        short = answers(broker, frame_of(LIST_GROUPS, 3))
        await asyncio.gather(hear("long", long), hear("short", short))
        assert heard == ["short", "long"]


def heartbeat_of(member_id: str, epoch: int, regex: str | None) -> bytes:
    said = {"subscribed_topic_regex": regex, "rebalance_timeout_ms": 10_000 if epoch == 0 else -1}
    said |= {"topic_partitions": [] if epoch == 0 else None, "subscribed_topic_names": None, "server_assignor": None}
    said |= {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "instance_id": None, "rack_id": None}
    return frame_of(CONSUMER_GROUP_HEARTBEAT, 1, **said)


@pytest.mark.parametrize("is_new", [True, False], ids=["of a new member", "after topics have come"])
def test_a_regular_expression_is_held_against_very_many_topics_in_many_turns(is_new: bool) -> None:
    # Nobody reads them, so there is nothing to assign.
    many = topics_made(*((f"no-{number:04d}-{'x' * 100}", 1) for number in range(MANY)))
    join, stay = heartbeat_of("m", 0, "(.*)*(a|b)"), heartbeat_of("m", 1, None)
    before = [many] if is_new else [join, many]
    assert asyncio.run(most_calls(join if is_new else stay, *before)) < CALLS_MAX


def joined_as_classic() -> bytes:
    names = {"group_id": "g", "member_id": "", "group_instance_id": "x", "protocol_type": "consumer", "reason": None}
    # What a consumer that reads topic `no` writes.
    metadata = bytes.fromhex("0000000000010002") + b"no" + b"\xff" * 4
    protocols = [{"name": "range", "metadata": metadata}]
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    return frame_of(JOIN_GROUP, 9, protocols=protocols, **names, **times)


def left_as_classic() -> bytes:
    members = [{"member_id": "", "group_instance_id": "x", "reason": None}]
    return frame_of(LEAVE_GROUP, 5, group_id="g", members=members)


@pytest.mark.parametrize("comes_or_goes", ["comes", "goes"])
def test_who_comes_or_goes_beside_a_regular_expression_holds_nobody_up(comes_or_goes: str) -> None:
    many = topics_made(*((f"no-{number:04d}-{'x' * 100}", 1) for number in range(MANY)))
    join = heartbeat_of("m", 0, "(.*)*(a|b)")
    if comes_or_goes == "comes":
        assert asyncio.run(most_calls(joined_as_classic(), join, many)) < CALLS_MAX
    else:
        assert asyncio.run(most_calls(left_as_classic(), join, joined_as_classic(), many)) < CALLS_MAX


def test_members_who_are_silent_for_too_long_are_taken_out_in_many_turns() -> None:
    async def run() -> int:
        async with stranger() as (broker, ask):
            await ask(heartbeat_of("m", 0, "(.*)*(a|b)"))
            await ask(heartbeat_of("n", 0, "(.*)*(a|b)"))
            await ask(topics_made(*((f"no-{number:04d}-{'x' * 100}", 1) for number in range(MANY))))
            group = broker.log.state.groups.consumer("g")
            # The other one is still there, and has its expression.
            group.hear("n", MemberRules(session_timeout_ms=10**9), broker.clock.steady_ms())
            counter = Counter()
            with profiled(counter.note):
                broker.clock.skip(10**5)
                asyncio.get_running_loop().call_soon(broker.runtime.alarm.catch_up)
                for _ in range(10_000):
                    if "m" not in group.members:
                        break
                    await asyncio.sleep(0)
            assert set(group.members) == {"n"}
            return counter.most

    assert asyncio.run(run()) < CALLS_MAX


async def test_a_member_hears_of_topics_that_came_while_its_expression_was_looked_up() -> None:
    async with stranger() as (broker, ask):
        await ask(topics_made(*((f"a-{number}", 1) for number in range(MANY))))
        joining, making = answers(broker, heartbeat_of("m", 0, ".*b")), answers(broker, topics_made(("b", 1)))
        joined, _ = await asyncio.gather(anext(joining), anext(making))
        heard = messages.decode_response(CONSUMER_GROUP_HEARTBEAT, 1, joined[5:])
        assert heard.assignment is not None
        assert [one.partitions for one in heard.assignment.topic_partitions] == [(0,)]


def test_the_end_of_a_transaction_in_very_many_partitions_is_prepared_in_many_turns() -> None:
    count = 1_000
    topics = [{"name": "t0", "partitions": list(range(count))}]
    fields = {"transactional_id": "mine", "producer_id": FIRST_PRODUCER_ID, "producer_epoch": 0}
    adding = {f"v3_and_below_{name}": value for name, value in (fields | {"topics": topics}).items()}
    claim = frame_of(INIT_PRODUCER_ID, 2, transactional_id="mine", transaction_timeout_ms=60_000)
    end = frame_of(END_TXN, 3, committed=True, **fields)
    add = frame_of(ADD_PARTITIONS_TO_TXN, 3, **adding)
    # What cannot be taken apart, without the making of a file for each.
    assert asyncio.run(most_calls(end, topics_made(("t0", count)), claim, add)) < count * 50


CHORES: dict[str, Callable[[Broker], None]] = {
    "checkpoint": lambda broker: broker.pump.begin_checkpoint(),
    "retention": lambda broker: broker.turns.begin(broker.log.retain(broker.clock.now_ms()), print),
    "forgetting": lambda broker: broker.turns.begin(forget_silent_producers(broker.runtime), print),
    "expiry": lambda broker: broker.turns.begin(forget_old_offsets(broker.runtime), print),
}


@pytest.mark.parametrize("chore", CHORES)
def test_what_a_broker_does_from_time_to_time_is_done_in_many_turns(chore: str) -> None:
    async def run() -> int:
        async with stranger() as (broker, ask):
            await ask(topics_made(("t0", MANY)))
            for partition in broker.log.state.partitions.all():
                for producer_id in range(3):
                    partition.state.producers.note(producer_id, 0, 0, 0, 1, 0, 0)
                    broker.log.state.partitions.producer_count += 1
                # As if something had been written.
                partition.state.next_offset = 1
            for number in range(2 * MANY):
                offsets = (StoredOffset(0, 0, 1, -1, ""),)
                broker.log.state.groups.apply(OffsetsCommitted(f"g{number}", offsets, -1, broker.clock.now_ms()))
            broker.log.state.silence.horizon_ms = 0
            counter = Counter()
            with profiled(counter.note):
                asyncio.get_running_loop().call_soon(CHORES[chore], broker)
                for _ in range(200):
                    await asyncio.sleep(0)
            return counter.most

    assert asyncio.run(run()) < CALLS_MAX
