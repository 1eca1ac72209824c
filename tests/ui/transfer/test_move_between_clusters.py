"""A move from one cluster into another: each committed record once, in its order, and groups go on where they were."""

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import pytest
from clusters import (
    another_cluster,
    client_of,
    commit_offset,
    committed_offsets,
    move,
    stored_in,
    transactions,
    values_in,
)

from asking import Asker
from cluster_under_test import FOREIGN_CLUSTER
from eventually import eventually
from semel.client import LogClient, LogError, Topic, TopicPartition, admin
from semel.client.cluster import TRANSACTION
from semel.client.patience import Patience
from semel.testing.broker import FaultyBroker
from semel.ui.transfer import topics
from semel.ui.transfer.move import Move, Moved
from semel.ui.transfer.progress import MoveRefused, Progress
from semel.ui.transfer.topics import Original
from semel.wire import kafka
from semel.wire.records import Record
from semel.wire.versions import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    OFFSET_COMMIT,
)
from transacting import TransactionalProducer

T = TypeVar("T")
MOST_CALLS = 1_000


def test_each_committed_record_is_there_once_and_in_its_order(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic, 2)
    committed = transactions(source.bootstrap, topic, 5)
    source.seed(topic, "a", "b", partition=1)
    moved = move(source.bootstrap, target)
    assert moved == Moved(1, 2, len(committed) + 2, 0, was_moved_before=False)
    assert values_in(target, topic) == committed
    assert values_in(target, topic, 1) == ["a", "b"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_keeps_its_key_its_headers_and_its_time(
    source: FaultyBroker, target: str, topic: str, codec: str
) -> None:
    source.create_topic(topic)
    records = [
        Record(b"value", b"key", [("header", b"of it"), ("none", None)], 1_700_000_000_000),
        Record(None, b"tombstone", timestamp_ms=1_700_000_000_007),
        Record(b"", None, timestamp_ms=5),
    ]
    with Asker(source.bootstrap) as ask:
        ask.produce(topic, records, codec=codec)
    move(source.bootstrap, target)
    assert [_without_offset(one) for one in stored_in(target, topic)] == [_without_offset(one) for one in records]


def test_the_time_of_the_broker_stays_the_time_of_a_record(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    source.seed(topic, Record(b"late", timestamp_ms=5))
    (record,) = source.log(topic)
    move(source.bootstrap, target)
    assert record.timestamp_ms > 5
    assert [one.timestamp_ms for one in stored_in(target, topic)] == [record.timestamp_ms]
    assert configs_in(target, topic)["message.timestamp.type"] == "LogAppendTime"


def test_a_log_that_begins_in_the_middle_of_a_batch_is_moved_from_there(
    source: FaultyBroker, target: str, topic: str
) -> None:
    source.create_topic(topic)
    source.seed(topic, "a", "b", "c")
    delete_before(source.bootstrap, topic, 1)
    commit_offset(source.bootstrap, "billing", topic, 2)
    move(source.bootstrap, target)
    assert values_in(target, topic) == ["b", "c"]
    assert committed_offsets(target, "billing")[TopicPartition(topic, 0)] == (1, "")


def test_groups_go_on_at_the_record_where_they_were(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    committed = transactions(source.bootstrap, topic, 6)
    stored = source.log(topic, committed_only=True)
    end = source.log(topic)[-1].offset + 2
    places = {f"group {number}": record.offset for number, record in enumerate(stored)}
    places |= {"at the end": end, "in an aborted one": next(r.offset for r in source.log(topic) if r not in stored)}
    for group, offset in places.items():
        commit_offset(source.bootstrap, group, topic, offset, note=f"of {group}")
    assert move(source.bootstrap, target).groups == len(places)
    for group, offset in places.items():
        at, note = committed_offsets(target, group)[TopicPartition(topic, 0)]
        ahead = [record.value.decode() for record in stored if record.offset >= offset and record.value]
        assert [one.value.decode() for one in stored_in(target, topic, at) if one.value] == ahead
        assert note == f"of {group}"
    assert len(committed) == len(stored)


def test_configurations_come_along_and_count_only_when_all_is_there(
    source: FaultyBroker, target: str, topic: str
) -> None:
    source.create_topic(topic, configs={"retention.ms": "1000", "max.message.bytes": "2000000"})
    source.create_topic(f"{topic}-state", configs={"cleanup.policy": "compact"})
    # Far too old to stay, were retention at work.
    source.seed(topic, Record(b"old", timestamp_ms=1))
    seen = []
    with client_of(source.bootstrap) as old, client_of(target) as new:
        Move(old, new, lambda _: seen.append(configs_in(target, topic)), lambda _: None, quiet_seconds=0).run()
    assert {one["retention.ms"] for one in seen} == {"-1"}
    now = configs_in(target, topic)
    assert (now["retention.ms"], now["max.message.bytes"]) == ("1000", "2000000")
    assert configs_in(target, f"{topic}-state")["cleanup.policy"] == "compact"


def test_a_configuration_that_the_target_does_not_know_is_named_and_left_out(target: str, topic: str) -> None:
    """Clusters of other versions and makers have configurations of their own."""
    configs = {"retention.ms": "1000", "no.such.thing": "7"}
    sources = {topic: Original(Topic(topic, UUID(int=7), 1), configs, configs)}
    with client_of(target) as client:
        progress = Progress(topics.progress_topic(client, f"semel-move-{topic}"))
        topics.prepare(client, sources, progress)
        assert topics.settle(client, sources, progress) == {topic: ["no.such.thing"]}
    assert configs_in(target, topic)["retention.ms"] == "1000"


def test_what_is_written_meanwhile_comes_along(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    source.seed(topic, "a")
    later = iter(["b", "c"])

    def write_more(line: str) -> None:
        for value in later:
            source.seed(topic, value)
            return

    with client_of(source.bootstrap) as old, client_of(target) as new:
        assert Move(old, new, write_more, lambda _: None, quiet_seconds=0).run().records == 3
    assert values_in(target, topic) == ["a", "b", "c"]


def test_a_partition_that_is_added_meanwhile_comes_along(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    more = [{"name": topic, "count": 2, "assignments": None}]

    def grow(_: str) -> None:
        with Asker(source.bootstrap) as ask:
            if ask(CREATE_PARTITIONS, topics=more, timeout_ms=1000, validate_only=False).results[0].error_code == 0:
                source.seed(topic, "b", partition=1)

    with client_of(source.bootstrap) as old, client_of(target) as new:
        Move(old, new, grow, lambda _: None, quiet_seconds=0).run()
    assert values_in(target, topic, 1) == ["b"]


def test_an_open_transaction_is_waited_for(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    said: list[str] = []
    with Asker(source.bootstrap) as ask:
        producer = TransactionalProducer(ask)
        producer.claim()
        producer.add(topic)
        producer.send(topic, "open")
        moving = threading.Thread(target=move, args=(source.bootstrap, target, said))
        moving.start()
        waiting = f"copied everything; waiting until the transaction that is open in {topic}-0 has ended"
        assert eventually(lambda: waiting in said)
        producer.end()
        moving.join()
    assert values_in(target, topic) == ["open"]


def test_a_second_move_changes_nothing(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    source.seed(topic, "a")
    commit_offset(source.bootstrap, topic, topic, 0)
    move(source.bootstrap, target)
    commit_offset(target, topic, topic, 1)
    source.seed(topic, "b")
    assert move(source.bootstrap, target) == Moved(1, 1, 0, 1, was_moved_before=True)
    assert values_in(target, topic) == ["a"]
    assert committed_offsets(target, topic)[TopicPartition(topic, 0)] == (1, "")


def test_thousands_of_offsets_with_metadata_come_along(source: FaultyBroker, target: str, topic: str) -> None:
    """As one batch they would be larger than any cluster takes."""
    source.create_topic(topic, 300)
    metadata = "m" * 4_000
    places = [{"partition_index": n, "committed_offset": n, "committed_metadata": metadata} for n in range(300)]
    with Asker(source.bootstrap) as ask:
        wanted = {"generation_id_or_member_epoch": -1, "member_id": "", "group_id": topic}
        answer = ask(OFFSET_COMMIT, 9, topics=[{"name": topic, "partitions": places}], **wanted)
    assert {one.error_code for one in answer.topics[0].partitions} == {0}
    move(source.bootstrap, target)
    assert committed_offsets(target, topic) == {TopicPartition(topic, n): (0, metadata) for n in range(300)}


def test_many_groups_have_more_time_for_their_one_transaction(source: FaultyBroker, target: str, topic: str) -> None:
    source.seed(topic, "a")
    for number in range(20):
        commit_offset(source.bootstrap, f"{topic} {number}", topic, 1)
    assert move(source.bootstrap, target).groups == 20
    with client_of(source.bootstrap) as old, client_of(target) as client:
        name = f"semel-move-{old.cluster.cluster_id()}"
        coordinator = client.cluster.coordinator(name, TRANSACTION)
        request = kafka.describe_transactions.DescribeTransactionsRequest(transactional_ids=[name])
        (state,) = client.cluster.ask(coordinator, request).transaction_states
    assert (state.error_code, state.transaction_timeout_ms) == (0, 64_000)


def test_a_batch_comes_along_that_the_source_would_not_accept_any_more(
    source: FaultyBroker, target: str, topic: str
) -> None:
    source.create_topic(topic, configs={"max.message.bytes": "10000000"})
    source.seed(topic, Record(b"x" * 5_000_000))
    with client_of(source.bootstrap) as client:
        admin.alter_configs(client.cluster, {topic: {"max.message.bytes": "1000"}})
    move(source.bootstrap, target)
    assert [len(record.value or b"") for record in stored_in(target, topic)] == [5_000_000]
    assert configs_in(target, topic)["max.message.bytes"] == "1000"


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("step", ["copied", "comparing"])
def test_retention_may_remove_records_of_the_source_at_any_step(
    source: FaultyBroker, target: str, topic: str, policy: str, step: str
) -> None:
    source.create_topic(topic, configs={"cleanup.policy": policy})
    for number in range(4):
        source.seed(topic, Record(b"%d" % number, b"key %d" % number))

    class Removing(LogClient):
        """Retention removes two records just before the first fetch, or just before the audit's."""

        def fetches(self, wanted: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
            fetched.append(wanted)
            if len(fetched) == (1 if step == "copied" else 2):
                delete_before(source.bootstrap, topic, 2)
            return super().fetches(wanted, *arguments, **options)

    fetched: list[Any] = []
    with client_of(source.bootstrap, Removing) as old, client_of(target) as new:
        moved = Move(old, new, lambda _: None, lambda _: None, quiet_seconds=0).run()
    assert moved.records == 2
    assert values_in(target, topic)[-2:] == ["2", "3"]


def test_a_slow_source_makes_transactions_shorter(source: FaultyBroker, target: str, topic: str) -> None:
    """Or they would exceed their timeout, and each next run would do so again."""
    source.create_topic(topic, 8)
    for partition in range(8):
        source.seed(topic, "a", partition=partition)

    class Slow(LogClient):
        def fetches(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            for fetched in super().fetches(*arguments, **options):
                now[0] += 20
                yield fetched

    now = [0.0]
    copied: list[int] = []
    with client_of(source.bootstrap, Slow) as old, client_of(target) as new:
        Move(old, new, lambda _: None, copied.append, quiet_seconds=0, steady=lambda: now[0]).run()
    assert len(copied) >= 4


def test_a_topic_whose_name_begins_like_the_progress_of_a_move_comes_along(
    source: FaultyBroker, target: str, topic: str
) -> None:
    source.seed(f"semel-move-{topic}", "a")
    move(source.bootstrap, target)
    assert values_in(target, f"semel-move-{topic}") == ["a"]


@pytest.mark.parametrize("when", ["copied everything", "comparing both sides"])
def test_a_topic_that_is_deleted_meanwhile_is_named_and_not_counted(
    source: FaultyBroker, target: str, topic: str, when: str
) -> None:
    source.create_topic(topic)
    source.seed(f"{topic}-kept", "a")
    said: list[str] = []

    def say(line: str) -> None:
        if line.startswith(when) and not any(earlier.startswith(when) for earlier in said):
            with Asker(source.bootstrap) as ask:
                ask(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=1000)
        said.append(line)

    # Each look at the clock takes a second.
    with client_of(source.bootstrap) as old, client_of(target) as new:
        moved = Move(old, new, say, lambda _: None, quiet_seconds=3, steady=count().__next__).run()
    assert moved == Moved(1, 1, 1, 0, was_moved_before=False)
    assert f"topic {topic!r} was deleted in the source after the move began: delete it in the target as well" in said


def test_the_group_without_a_name_does_not_stop_a_move(source: FaultyBroker, target: str, topic: str) -> None:
    source.seed(topic, "a")
    commit_offset(source.bootstrap, "", topic, 0)
    said: list[str] = []
    assert move(source.bootstrap, target, said).groups == 0
    assert "the offsets of the group without a name are not moved" in said


# -- killed -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is no more."""


class Dying(LogClient):
    """A client whose process is killed before or after one of its calls."""

    calls_left = MOST_CALLS

    def _live(self) -> None:
        Dying.calls_left -= 1
        if Dying.calls_left <= 0:
            raise Killed

    def patiently(self, attempt: Callable[[], T], patience: Patience | None = None) -> T:
        self._live()
        outcome = super().patiently(attempt, patience)
        self._live()
        return outcome

    def fetches(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        for fetched in super().fetches(*arguments, **options):
            self._live()
            yield fetched


def move_until_killed(source: str, target: str, calls: int) -> bool:
    """Whether the move came to its end before that."""
    Dying.calls_left = calls
    with client_of(source, Dying) as old, client_of(target, Dying) as new:
        try:
            Move(old, new, lambda _: None, lambda _: None, quiet_seconds=0).run()
        except Killed:
            return False
    return True


def deaths(step: int) -> Iterable[int]:
    return range(1, MOST_CALLS, step)


def check_all_deaths(source: FaultyBroker, topic: str, step: int) -> int:
    """Kill a move at a call, then the next one, which goes on, at the same, and let a third one end it. Answers how
    many places there were."""
    source.create_topic(topic, 2)
    committed = transactions(source.bootstrap, topic, 3)
    source.seed(topic, "x", "y", partition=1)
    first = source.log(topic, committed_only=True)[1].offset
    commit_offset(source.bootstrap, topic, topic, first)
    for number, calls in enumerate(deaths(step)):
        with another_cluster() as target:
            has_ended = move_until_killed(source.bootstrap, target, calls)
            if not has_ended and not move_until_killed(source.bootstrap, target, calls):
                move(source.bootstrap, target)
            assert values_in(target, topic) == committed, f"killed at call {calls}"
            assert values_in(target, topic, 1) == ["x", "y"], f"killed at call {calls}"
            (at, _) = committed_offsets(target, topic)[TopicPartition(topic, 0)]
            assert [one.value for one in stored_in(target, topic, at)] == [v.encode() for v in committed[1:]]
        if has_ended:
            return number
    raise AssertionError("it never came to its end")


@pytest.mark.skipif(FOREIGN_CLUSTER is not None, reason="needs a new target for each death")
def test_a_move_that_is_killed_goes_on(source: FaultyBroker, topic: str) -> None:
    assert check_all_deaths(source, topic, step=19) > 3


@pytest.mark.parametrize("what", ["a record", "an offset", "nothing"])
def test_a_move_that_was_killed_after_the_audit_goes_on_if_nobody_used_the_source_since(
    source: FaultyBroker, target: str, topic: str, what: str
) -> None:
    """A group that went on in the source would process the same records again in the target."""

    class KilledAfterTheAudit(Move):
        def _conclude(self, progress: Progress) -> None:
            raise Killed

    source.seed(topic, "a", "b")
    commit_offset(source.bootstrap, topic, topic, 1)
    with client_of(source.bootstrap) as old, client_of(target) as new, pytest.raises(Killed):
        KilledAfterTheAudit(old, new, lambda _: None, lambda _: None, quiet_seconds=0).run()
    if what == "a record":
        source.seed(topic, "c")
    elif what == "an offset":
        commit_offset(source.bootstrap, topic, topic, 2)
    else:
        assert move(source.bootstrap, target).groups == 1
        assert committed_offsets(target, topic)[TopicPartition(topic, 0)] == (1, "")
        return
    with pytest.raises(MoveRefused, match="written to the source, or offsets committed there, after it was compared"):
        move(source.bootstrap, target)
    assert committed_offsets(target, topic) == {}


@pytest.mark.slow
@pytest.mark.skipif(FOREIGN_CLUSTER is not None, reason="needs a new target for each death")
def test_a_move_may_be_killed_at_any_call(source: FaultyBroker, topic: str) -> None:
    assert check_all_deaths(source, topic, step=1) > 60


def test_of_two_moves_at_the_same_time_one_gives_up(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    source.seed(topic, "a")

    def move_as_well(_: str) -> None:
        # It has claimed the transactional id, and has moved all there is.
        if not outcomes:
            outcomes.append(move(source.bootstrap, target).records)

    outcomes: list[int] = []
    with client_of(source.bootstrap) as old, client_of(target) as new:
        first = Move(old, new, move_as_well, lambda _: None, quiet_seconds=0)
        with pytest.raises(MoveRefused, match="another semel move from the same cluster is running"):
            first.run()
    assert outcomes == [1]
    assert values_in(target, topic) == ["a"]


# -- refused ----------------------------------------------------------------------------------------------------------


def test_a_topic_that_holds_something_else_is_refused(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    with client_of(target) as client:
        admin.create_topic(client.cluster, topic, 1, {})
    assert eventually(lambda: seeded(target, topic))
    with pytest.raises(MoveRefused, match=f"topic '{topic}' of the target has records already"):
        move(source.bootstrap, target)


def test_a_topic_with_more_partitions_is_refused(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    with client_of(target) as client:
        admin.create_topic(client.cluster, topic, 2, {})
    with pytest.raises(MoveRefused, match=f"topic '{topic}' has 2 partitions in the target and 1 in the source"):
        move(source.bootstrap, target)


def test_a_topic_that_was_made_anew_is_refused(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)

    def make_anew(line: str) -> None:
        with Asker(source.bootstrap) as ask:
            ask(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=1000)
        source.create_topic(topic)

    with client_of(source.bootstrap) as old, client_of(target) as new:
        moving = Move(old, new, make_anew, lambda _: None, quiet_seconds=0)
        with pytest.raises(LogError, match="was deleted and"):
            moving.run()


def test_a_cluster_is_not_moved_into_itself(source: FaultyBroker) -> None:
    with pytest.raises(MoveRefused, match="the source and the target are the same cluster"):
        move(source.bootstrap, source.bootstrap)


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """Remove the records before an offset, as retention does."""
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
    with Asker(bootstrap) as ask:
        assert ask(DELETE_RECORDS, topics=[wanted], timeout_ms=1000).topics[0].partitions[0].error_code == 0


def seeded(bootstrap: str, topic: str) -> bool:
    """Whether a record could be put into a topic that was just made."""
    with Asker(bootstrap) as ask:
        try:
            return ask.produce(topic, [Record(b"foreign")]) >= 0
        except AssertionError:
            return False


def configs_in(bootstrap: str, topic: str) -> dict[str, str]:
    with client_of(bootstrap) as client:
        configs = client.patiently(lambda: admin.configs_of(client.cluster, topic, None))
        return {one.name: one.value for one in configs}


def _without_offset(record: Record) -> tuple[object, ...]:
    return record.value, record.key, list(record.headers), record.timestamp_ms
