"""Sessions of incremental fetches (KIP-227) and what one fetch answer holds, as clients of every age rely on it."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from asking import Asker, at
from semel.log.broker.sessions import FINAL_EPOCH, INITIAL_EPOCH, KEPT_MS, FetchContext, FetchSessions
from semel.log.core.access import Principal
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from semel.wire.records import Record
from semel.wire.versions import DELETE_TOPICS, FETCH

BY_NAME, BY_ID = 12, 13


class Consumer:
    """Fetches in one session, with the next epoch each time."""

    def __init__(self, ask: Asker, version: int = BY_NAME) -> None:
        self._ask = ask
        self._version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(
        self,
        wanted: dict[tuple[str | UUID, int], int] | None = None,
        forgotten: list[tuple[str | UUID, int]] = [],  # noqa: B006
        *,
        wait_ms: int = 0,
        bytes_min: int = 0,
        bytes_max: int = 2**31 - 1,
        partition_bytes_max: int = 2**31 - 1,
        later: bool = False,
    ) -> Any:
        """The answer to a fetch that names these partitions with their offsets; the rest is up to the session.

        With `later` the answer is left to be read, as a frame.
        """
        key = "topic" if self._version < BY_ID else "topic_id"
        topics = [
            {
                key: getattr(topic, "bytes", topic),
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": partition_bytes_max,
                        "current_leader_epoch": -1,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                    }
                ],
            }
            for (topic, partition), offset in (wanted or {}).items()
        ]
        gone = [{key: getattr(topic, "bytes", topic), "partitions": [partition]} for topic, partition in forgotten]
        fields: dict[str, Any] = {
            "replica_id": -1,
            "max_wait_ms": wait_ms,
            "min_bytes": bytes_min,
            "max_bytes": bytes_max,
            "isolation_level": 0,
            "session_id": self.session_id,
            "session_epoch": self.epoch,
            "topics": topics,
            "forgotten_topics_data": gone,
            "rack_id": "",
        }
        if later:
            return self._ask.ask_later(FETCH, self._version, **fields)
        answer = self._ask(FETCH, self._version, **fields)
        if not answer.error_code:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer


def shown(answer: Any) -> dict[tuple[Any, int], Any]:
    """The partitions in an answer."""
    assert answer.error_code == 0
    return {
        (getattr(topic, "topic", None) or topic.topic_id, partition.partition_index): partition
        for topic in answer.responses
        for partition in topic.partitions
    }


@pytest.fixture
def ask(semel_broker: FaultyBroker) -> Iterator[Asker]:
    asker = Asker(semel_broker.bootstrap)
    asker.create("payments", 3)
    yield asker
    asker.close()


ALL = {("payments", 0): 0, ("payments", 1): 0, ("payments", 2): 0}


# -- sessions -----------------------------------------------------------------------------------------------------


def test_the_first_answer_shows_all_partitions_and_the_next_only_what_changed(ask: Asker) -> None:
    consumer = Consumer(ask)
    assert shown(consumer.fetch(ALL)).keys() == ALL.keys()
    assert consumer.session_id > 0
    assert shown(consumer.fetch()) == {}
    ask.produce("payments", at(1), 1)
    changed = shown(consumer.fetch())
    assert changed.keys() == {("payments", 1)}
    assert changed["payments", 1].high_watermark == 1
    assert changed["payments", 1].records
    # The consumer names the new offset of what it got, and nothing else.
    assert shown(consumer.fetch({("payments", 1): 1})) == {}


def test_a_partition_that_is_forgotten_is_shown_no_more(ask: Asker) -> None:
    consumer = Consumer(ask)
    consumer.fetch(ALL)
    consumer.fetch(forgotten=[("payments", 1)])
    ask.produce("payments", at(1), 1)
    ask.produce("payments", at(1), 2)
    assert shown(consumer.fetch()).keys() == {("payments", 2)}


def test_a_partition_may_join_later(ask: Asker) -> None:
    consumer = Consumer(ask)
    consumer.fetch({("payments", 0): 0})
    assert shown(consumer.fetch({("payments", 2): 0})).keys() == {("payments", 2)}
    ask.produce("payments", at(1), 2)
    assert shown(consumer.fetch()).keys() == {("payments", 2)}


def test_an_unknown_session_and_a_wrong_epoch_are_told_apart(ask: Asker) -> None:
    consumer = Consumer(ask)
    consumer.fetch(ALL)
    known, consumer.session_id = consumer.session_id, consumer.session_id ^ 1
    assert consumer.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    consumer.session_id = known
    consumer.epoch += 1
    assert consumer.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch -= 1
    assert consumer.fetch().error_code == 0, "a mistake does not end the session"


def test_a_request_that_came_twice_is_noticed(ask: Asker) -> None:
    consumer = Consumer(ask)
    consumer.fetch(ALL)
    consumer.fetch()
    consumer.epoch -= 1
    assert consumer.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_last_epoch_ends_the_session_and_lists_everything_once_more(ask: Asker) -> None:
    consumer = Consumer(ask)
    consumer.fetch(ALL)
    ended = consumer.session_id
    consumer.epoch = -1
    answer = consumer.fetch(ALL)
    assert answer.session_id == 0
    assert shown(answer).keys() == ALL.keys()
    consumer.session_id, consumer.epoch = ended, 1
    assert consumer.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_with_an_error_is_shown_again_and_again(ask: Asker) -> None:
    consumer = Consumer(ask)
    consumer.fetch({("payments", 0): 77, ("payments", 1): 0})
    for _ in range(2):
        assert shown(consumer.fetch())["payments", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert ("payments", 0) in shown(consumer.fetch({("payments", 0): 0})), "the consumer is told that it is well again"
    assert shown(consumer.fetch()) == {}


def test_a_topic_that_was_made_again_is_noticed_by_id_and_not_by_name(ask: Asker) -> None:
    again = ask.create("again")
    ask.produce("again", at(1))
    by_id, by_name = Consumer(ask, BY_ID), Consumer(ask, BY_NAME)
    by_id.fetch({(again.topic_id, 0): 1})
    by_name.fetch({("again", 0): 1})
    ask(DELETE_TOPICS, 5, topic_names=["again"], timeout_ms=1000)
    assert shown(by_id.fetch())[again.topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shown(by_name.fetch())["again", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    anew = ask.create("again")
    assert anew.topic_id != again.topic_id
    ask.produce("again", at(1))
    assert shown(by_id.fetch())[again.topic_id, 0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert shown(Consumer(ask, BY_ID).fetch({(again.topic_id, 0): 1}))[again.topic_id, 0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID
    ), "who has not read it before"
    assert shown(by_name.fetch())["again", 0].error_code == 0
    found = shown(by_id.fetch({(anew.topic_id, 0): 0}, forgotten=[(again.topic_id, 0)]))
    assert found.keys() == {(anew.topic_id, 0)}
    assert found[anew.topic_id, 0].records


def test_names_and_ids_do_not_mix_in_a_session(ask: Asker) -> None:
    consumer = Consumer(ask, BY_NAME)
    consumer.fetch(ALL)
    consumer._version = BY_ID
    assert consumer.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_incremental_fetch_waits_for_its_partitions(ask: Asker, semel_broker: FaultyBroker) -> None:
    waiting = Asker(semel_broker.bootstrap)
    consumer = Consumer(waiting)
    consumer.fetch(ALL)
    consumer.fetch(wait_ms=60_000, bytes_min=1, later=True)
    ask.produce("payments", [Record(b"at last")], 2)
    assert b"at last" in waiting.read()
    waiting.close()


# -- what one answer holds ----------------------------------------------------------------------------------------


def test_an_offset_in_the_middle_of_a_batch_gives_the_whole_batch(ask: Asker) -> None:
    ask.produce("payments", at(1, 2, 3))
    ask.produce("payments", at(4))
    whole = shown(Consumer(ask).fetch({("payments", 0): 0}))["payments", 0].records
    assert shown(Consumer(ask).fetch({("payments", 0): 2}))["payments", 0].records == whole
    after = shown(Consumer(ask).fetch({("payments", 0): 3}))["payments", 0].records
    assert whole.endswith(after)
    assert after


@pytest.mark.parametrize("bytes_max", [0, 1, 60])
def test_at_least_one_batch_comes_however_small_the_limits_are(ask: Asker, bytes_max: int) -> None:
    ask.produce("payments", [Record(b"x" * 1000)])
    ask.produce("payments", [Record(b"y" * 1000)])
    answer = Consumer(ask).fetch({("payments", 0): 0}, bytes_max=bytes_max, partition_bytes_max=bytes_max)
    records = shown(answer)["payments", 0].records
    assert records.count(b"x") >= 1000
    assert b"yyyy" not in records


def test_the_limit_of_an_answer_holds_for_all_partitions_together(ask: Asker) -> None:
    for partition in range(3):
        ask.produce("payments", [Record(b"x" * 1000)], partition)
    found = shown(Consumer(ask).fetch(ALL, bytes_max=1500))
    assert [bool(found["payments", partition].records) for partition in range(3)] == [True, False, False]


def test_who_got_records_is_served_last_the_next_time(ask: Asker) -> None:
    """Or a partition that always has records would starve the others where answers are small."""
    for partition in range(3):
        for _ in range(2):
            ask.produce("payments", [Record(b"x" * 1000)], partition)
    consumer = Consumer(ask)
    offsets = dict(ALL)
    served = []
    moved: dict[tuple[str | UUID, int], int] = ALL  # type: ignore[assignment]
    for _ in range(6):
        found = shown(consumer.fetch(moved, bytes_max=1100))
        (key,) = (key for key, partition in found.items() if partition.records)
        offsets[key] += 1
        moved = {key: offsets[key]}
        served.append(key[1])
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_fetch_waits_until_there_is_as_much_as_it_asks_for(ask: Asker, semel_broker: FaultyBroker) -> None:
    waiting = Asker(semel_broker.bootstrap)
    Consumer(waiting).fetch({("payments", 0): 0}, wait_ms=60_000, bytes_min=2_000, later=True)
    ask.produce("payments", [Record(b"x" * 1000)])
    assert not waiting.has_answer()
    ask.produce("payments", [Record(b"y" * 1000)])
    frame = waiting.read()
    assert b"x" * 1000 in frame
    assert b"y" * 1000 in frame
    waiting.close()


def test_a_fetch_whose_time_is_up_gets_what_there_is(ask: Asker) -> None:
    ask.produce("payments", at(1))
    found = shown(Consumer(ask).fetch({("payments", 0): 0}, wait_ms=1, bytes_min=10**6))
    assert found["payments", 0].records


def test_an_error_is_not_waited_with(ask: Asker) -> None:
    found = shown(Consumer(ask).fetch({("payments", 9): 0}, wait_ms=60_000, bytes_min=1))
    assert found["payments", 9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- limits, on the sessions alone --------------------------------------------------------------------------------


def request(
    session_id: int, epoch: int, topics: dict[str, int], forgotten: dict[str, int] | None = None
) -> FetchRequest:
    listed = [
        FetchTopic(name, None, [FetchPartition(index, 0, 1000, -1, -1) for index in range(count)])
        for name, count in topics.items()
    ]
    gone = [ForgottenTopic(name, None, list(range(count))) for name, count in (forgotten or {}).items()]
    return FetchRequest(0, 0, 1000, 0, session_id, epoch, listed, gone, "")


def begin(sessions: FetchSessions, topics: dict[str, int], now_ms: int = 0) -> FetchContext:
    return sessions.resolve(request(0, 0, topics), False, now_ms)


def test_a_full_house_of_used_sessions_is_left_alone_and_the_newcomer_goes_without() -> None:
    sessions = FetchSessions(2, 100)
    assert begin(sessions, {"a": 1}).session
    assert begin(sessions, {"b": 1}).session
    newcomer = begin(sessions, {"c": 1}, KEPT_MS - 1)
    assert newcomer.session is None
    assert newcomer.error == 0
    assert len(newcomer.interests) == 1, "it is served all the same"
    assert len(sessions) == 2


def test_another_user_can_neither_go_on_with_a_session_nor_end_it() -> None:
    alice, mallory = Principal("User", "alice"), Principal("User", "mallory")
    sessions = FetchSessions(2, 100)
    session = sessions.resolve(request(0, 0, {"a": 1}), False, 0, alice).session
    assert session
    stolen = sessions.resolve(request(session.session_id, 1, {}), False, 0, mallory)
    assert (stolen.error, stolen.interests) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    for epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        sessions.resolve(request(session.session_id, epoch, {}), False, 0, mallory)
    mine = sessions.resolve(request(session.session_id, 1, {}), False, 0, alice)
    assert (mine.error, len(mine.interests)) == (0, 1)


def test_the_longest_unused_session_makes_way() -> None:
    sessions = FetchSessions(2, 100)
    first, second = begin(sessions, {"a": 1}, 0).session, begin(sessions, {"b": 1}, 1).session
    assert first
    assert second
    sessions.resolve(request(first.session_id, 1, {}), False, 2)
    assert begin(sessions, {"c": 1}, KEPT_MS + 1).session
    assert sessions.resolve(request(second.session_id, 1, {}), False, 3).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resolve(request(first.session_id, 2, {}), False, 3).error == 0


def test_partitions_of_all_sessions_are_limited_and_room_comes_back() -> None:
    sessions = FetchSessions(10, 10)
    first = begin(sessions, {"a": 6}).session
    assert first
    assert begin(sessions, {"b": 5}).session is None
    assert sessions.resolve(request(first.session_id, 1, {}, {"a": 4}), False, 0).error == 0
    assert begin(sessions, {"b": 5}).session


def test_a_session_that_grows_beyond_the_limit_ends_and_its_consumer_is_told() -> None:
    sessions = FetchSessions(10, 10)
    session = begin(sessions, {"a": 6}).session
    assert session
    grown = sessions.resolve(request(session.session_id, 1, {"b": 5}), False, 0)
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    assert begin(sessions, {"c": 10}).session, "all its room has come back"


def test_names_that_no_topic_has_fill_no_session() -> None:
    sessions = FetchSessions(10, 10)
    assert begin(sessions, {"x" * 250: 1}).session is None
    session = begin(sessions, {"x" * 249: 1}).session
    assert session
    grown = sessions.resolve(request(session.session_id, 1, {"y" * 10**6: 1}), False, 0)
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_begins_again_at_one_after_the_last() -> None:
    sessions = FetchSessions(1, 10)
    session = begin(sessions, {"a": 1}).session
    assert session
    session.epoch = 2**31 - 1
    assert sessions.resolve(request(session.session_id, 2**31 - 1, {}), False, 0).error == 0
    assert sessions.resolve(request(session.session_id, 1, {}), False, 0).error == 0
