"""Raw requests of members of share groups, right and wrong, and what a broker answers: the same for any broker.

What is asked follows from the seed alone, except for the epoch of each session, which follows from the answers. A
scenario has a topic and a group of its own, and is shorter than a lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final
from uuid import UUID

from asking import Asker, at
from eventually import eventually
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FIND_COORDINATOR,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
)
from sharing import ACCEPT, RELEASE, configure

# Those in which Apache Kafka's answers do not depend on how fast it stores what was acknowledged before.
SEEDS: Final = (0, 1, 3, 4, 5, 7)
CALLS: Final = 50
MEMBERS: Final = ("ada", "bob", "cyd")
# Records in each batch of the log.
BATCHES: Final = (1, 3, 5, 2, 1, 4, 1, 1, 6, 3)
RECORDS: Final = sum(BATCHES)

Answer = list[Any]


class Scenario:
    """One topic, one group, and its members, each on a connection of its own."""

    def __init__(self, bootstrap: str, number: int, wait_ms: int) -> None:
        self._random = Random(number)
        self._wait_ms = wait_ms
        self._group = f"raw {number}"
        self._topic = f"raw-{number}"
        self._asks = {member: Asker(bootstrap) for member in MEMBERS}
        self._epochs = dict.fromkeys(MEMBERS, 0)
        ask = self._asks[MEMBERS[0]]
        self._topic_id = ask.create(self._topic).topic_id
        for batch, size in enumerate(BATCHES):
            times = range(1_000 + batch, 1_000 + batch + size)
            assert eventually(lambda times=times: _append(ask, self._topic, times))
        configure(ask, self._group, auto_offset_reset="earliest", record_lock_duration_ms="60000")

    def close(self) -> None:
        for ask in self._asks.values():
            ask.close()

    def answers(self) -> Iterator[tuple[str, Answer]]:
        """What is asked, and the answer."""
        for member in MEMBERS:
            assert eventually(lambda member=member: self._joined(member))
        for _ in range(CALLS):
            member = self._random.choice(MEMBERS)
            yield self._call(member)
        groups = [{"group_id": self._group, "topics": [{"topic_name": self._topic, "partitions": [0]}]}]
        (described,) = self._asks[MEMBERS[0]](DESCRIBE_SHARE_GROUP_OFFSETS, 0, groups=groups).groups
        # Apache Kafka stores the start later.
        partitions = [[one.partition_index, one.error_code] for one in described.topics[0].partitions]
        yield "describe", [described.error_code, partitions]

    def _joined(self, member: str) -> bool:
        """Whether it has. In Apache Kafka the coordinator is made when it is asked for, and loads the group then."""
        self._asks[member](FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[self._group])
        fields = {"rack_id": None, "subscribed_topic_names": [self._topic]}
        ask = self._asks[member]
        answer = ask(SHARE_GROUP_HEARTBEAT, group_id=self._group, member_id=member, member_epoch=0, **fields)
        return answer.error_code == 0

    def _call(self, member: str) -> tuple[str, Answer]:
        random = self._random
        due = self._epochs[member]
        epoch = due if random.random() < 0.85 else random.choice((-1, 0, due + 1, 2**31 - 1))
        acks = self._acks() if random.random() < 0.6 else []
        is_ack = random.random() < 0.45
        if not is_ack:
            # Apache Kafka releases records so late that the same fetch may or may not get them again.
            for ack in acks:
                ack["acknowledge_types"] = [ACCEPT if word == RELEASE else word for word in ack["acknowledge_types"]]
        renews = is_ack and random.random() < 0.2
        # To a fetch from an unknown topic, Apache Kafka answers UNKNOWN_SERVER_ERROR.
        topic_id = UUID(int=7).bytes if is_ack and random.random() < 0.1 else self._topic_id
        index = 0 if random.random() < 0.95 else 9
        who = member if random.random() < 0.97 else random.choice(("", "x" * 37))
        # Without a strict limit, Apache Kafka gives whole runs that it remembers, and semel whole batches of the log.
        mode, records_max = random.choice(((0, 100), (1, 1), (1, 2), (1, 4), (1, 100)))
        size = random.choice((1, 3, 100))
        partition = {"partition_index": index, "acknowledgement_batches": acks}
        session = {"group_id": self._group, "member_id": who, "share_session_epoch": epoch, "is_renew_ack": renews}
        asked = (
            f"{who[:3]} {epoch - due:+} {[(a['first_offset'], a['last_offset'], a['acknowledge_types']) for a in acks]}"
        )
        if is_ack:
            topics = [{"topic_id": topic_id, "partitions": [partition]}]
            answer = self._asks[member](SHARE_ACKNOWLEDGE, 2, topics=topics, **session)
            told: Answer = [[one.partition_index, one.error_code] for t in answer.responses for one in t.partitions]
            asked = f"acknowledge{' renewing' if renews else ''} {asked}"
        else:
            topics = [{"topic_id": topic_id, "partitions": [{**partition, "partition_max_bytes": 0}]}]
            answer = self._asks[member](
                SHARE_FETCH,
                2,
                max_wait_ms=self._wait_ms,
                min_bytes=1,
                max_bytes=1_000_000,
                max_records=records_max,
                batch_size=size,
                share_acquire_mode=mode,
                topics=topics,
                forgotten_topics_data=[],
                **session,
            )
            # A partition without records or errors may be left out.
            told = [one for t in answer.responses for p in t.partitions if any((one := _of(p))[1:])]
            asked = f"fetch {('batch', 'record')[mode]} {records_max} by {size} {asked}"
        if answer.error_code == 0 and who == member:
            self._epochs[member] = 0 if epoch == -1 else max(epoch, 0) + 1
        elif answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND:
            self._epochs[member] = 0
        if topic_id != self._topic_id:
            asked = f"unknown topic: {asked}"
        return f"{asked} in {index}", [answer.error_code, sorted(told)]

    def _acks(self) -> list[dict[str, Any]]:
        """A few ranges of what there may be, sometimes nonsense."""
        random = self._random
        acks = []
        first = random.randrange(RECORDS)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            last = first + random.choice((0, 0, 0, 1, 2, 4, -1))
            count = max(last - first + 1, 1)
            odd = random.choice((0, 0, 0, 0, 4, 7))
            count = random.choice((1, 1, count, count, count, count + 1))
            words = [random.choice((1, 1, 1, 2, 2, 2, 3, odd)) for _ in range(count)]
            acks.append({"first_offset": first, "last_offset": last, "acknowledge_types": words})
            first = last + random.choice((1, 1, 1, 2, 0, -2))
            first = max(first, 0)
        return acks


def _append(ask: Asker, topic: str, times: range) -> bool:
    """Whether the batch was appended. In Apache Kafka a new topic has no leader at first."""
    try:
        ask.produce(topic, at(*times))
    except AssertionError:
        return False
    return True


def _of(partition: Any) -> Answer:
    """Where ranges of records are divided is up to the broker."""
    acquired: list[list[int]] = []
    for one in partition.acquired_records:
        if acquired and acquired[-1][1:] == [one.first_offset - 1, one.delivery_count]:
            acquired[-1][1] = one.last_offset
        else:
            acquired.append([one.first_offset, one.last_offset, one.delivery_count])
    return [partition.partition_index, partition.error_code, partition.acknowledge_error_code, acquired]


def all_answers(bootstrap: str, wait_ms: int) -> dict[str, list[Answer]]:
    """The answers of this broker, by scenario. It waits so long for records, if a broker has to load them first."""
    # The first group of all makes Apache Kafka create its topic of states, which takes a while.
    found = {}
    for seed in (max(SEEDS) + 1, *SEEDS):
        scenario = Scenario(bootstrap, seed, wait_ms)
        found[str(seed)] = [[asked, answer] for asked, answer in scenario.answers()]
        scenario.close()
    return {str(seed): found[str(seed)] for seed in SEEDS}
