"""A member with a regular expression reads the topics that it may describe, and takes no partition from those who may.

As in Apache Kafka, an expression stands for no other topics; here also as soon as a rule has changed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from test_consumer_groups import beat, described

from asking import Asker
from guarded import CLUSTER, DESCRIBE, GROUP, READ, TOPIC, GuardedBroker, rule
from logged_in import BrokerOfUsers
from semel.log.core.access import CLUSTER_NAME, Operation, Pattern, Permission
from semel.log.core.groups.consumer_topics import EXPRESSIONS_MAX
from semel.wire.errors import ErrorCode
from semel.wire.versions import CONSUMER_GROUP_HEARTBEAT, OFFSET_COMMIT, OFFSET_DELETE


class Reader:
    """A member that reads all topics of a pattern, and gives up at once what it must."""

    def __init__(self, ask: Asker, member_id: str, regex: str = ".*", group: str = "readers") -> None:
        self._ask = ask
        self.member_id = member_id
        self._group = group
        self.epoch = 0
        self.told: dict[bytes, tuple[int, ...]] = {}
        self._joining = {"subscribed_topic_names": [], "subscribed_topic_regex": regex, "rebalance_timeout_ms": 60_000}

    def beat(self, **said: Any) -> int:
        """Send a heartbeat; the error code."""
        owned = [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in self.told.items()]
        fields = {**(self._joining if not self.epoch else {}), "topic_partitions": owned, **said}
        answer = beat(self._ask, self.member_id, self.epoch, group=self._group, **fields)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}
        return int(answer.error_code)


def settle(*readers: Reader) -> None:
    """Enough heartbeats for every member to reach its target."""
    for _ in range(4):
        for reader in readers:
            assert reader.beat() == 0


def seen_by(reader: Reader, topics: dict[str, bytes]) -> set[str]:
    names = {topic_id: name for name, topic_id in topics.items()}
    return {names[topic_id] for topic_id in reader.told}


@pytest.fixture
def topics(admin: Asker) -> dict[str, bytes]:
    return {name: admin.create(name, 2).topic_id for name in ("orders", "secrets")}


@pytest.fixture
def users() -> Iterator[BrokerOfUsers]:
    with BrokerOfUsers() as broker:
        yield broker


def test_an_expression_stands_for_no_topic_that_its_member_may_not_describe(
    broker: GuardedBroker, stranger: Asker, topics: dict[str, bytes]
) -> None:
    broker.add(rule(GROUP, "readers", READ), rule(TOPIC, "orders", DESCRIBE))
    reader = Reader(stranger, "a")
    settle(reader)
    assert reader.told == {topics["orders"]: (0, 1)}


def test_who_may_see_nothing_is_a_member_without_partitions(
    broker: GuardedBroker, stranger: Asker, topics: dict[str, bytes]
) -> None:
    broker.add(rule(GROUP, "readers", READ))
    reader = Reader(stranger, "a")
    settle(reader)
    assert reader.told == {}


def test_a_member_takes_no_partition_from_those_who_may_read_it(
    broker: GuardedBroker, admin: Asker, stranger: Asker, topics: dict[str, bytes]
) -> None:
    broker.add(rule(GROUP, "readers", READ), rule(TOPIC, "orders", DESCRIBE))
    one, other = Reader(admin, "a"), Reader(stranger, "b")
    settle(one, other)
    assert one.told == {topics["secrets"]: (0, 1)}
    assert other.told == {topics["orders"]: (0, 1)}


def test_what_an_expression_stands_for_changes_with_the_rules_and_with_the_topics(
    broker: GuardedBroker, admin: Asker, stranger: Asker, topics: dict[str, bytes]
) -> None:
    broker.add(rule(GROUP, "readers", READ))
    reader, other = Reader(stranger, "a"), Reader(admin, "b")
    settle(reader, other)
    may_see = rule(TOPIC, "orders", READ), rule(TOPIC, "more", READ, pattern=Pattern.PREFIXED)
    broker.add(*may_see)
    settle(reader, other)
    assert seen_by(reader, topics) == {"orders"}
    topics["more-orders"] = admin.create("more-orders", 2).topic_id
    topics["lesser"] = admin.create("lesser", 2).topic_id
    settle(reader, other)
    assert seen_by(reader, topics) == {"orders", "more-orders"}
    denied = rule(TOPIC, "orders", DESCRIBE, Permission.DENY)
    broker.add(denied)
    settle(reader, other)
    assert seen_by(reader, topics) == {"more-orders"}
    assert other.told[topics["orders"]] == (0, 1)
    broker.remove(denied, *may_see)
    settle(reader, other)
    assert reader.told == {}


def test_two_members_who_lose_and_gain_a_topic_at_once_are_both_noticed(users: BrokerOfUsers) -> None:
    with users.administrator() as admin:
        topics = {name: admin.create(name, 2).topic_id for name in ("orders", "secrets")}
    for user in ("anne", "eve"):
        users.allow(user, (GROUP, "readers", READ))
    users.allow("anne", (TOPIC, "secrets", READ))
    users.allow("eve", (TOPIC, "orders", READ))
    with users.log_in("anne") as annes, users.log_in("eve") as eves:
        anne, eve = Reader(annes, "a"), Reader(eves, "b")
        settle(anne, eve)
        assert (seen_by(anne, topics), seen_by(eve, topics)) == ({"secrets"}, {"orders"})
        users.allow("anne", (TOPIC, "orders", READ))
        users.allow("eve", (TOPIC, "secrets", READ))
        users.forbid("anne", (TOPIC, "secrets", READ))
        users.forbid("eve", (TOPIC, "orders", READ))
        settle(anne, eve)
        assert (seen_by(anne, topics), seen_by(eve, topics)) == ({"orders"}, {"secrets"})


def test_who_speaks_for_the_member_of_another_sees_no_more_than_before(users: BrokerOfUsers) -> None:
    with users.administrator() as admin:
        topics = {name: admin.create(name, 2).topic_id for name in ("orders", "secrets")}
    users.allow("anne", (GROUP, "readers", READ), (TOPIC, "*", READ))
    users.allow("eve", (GROUP, "readers", READ), (TOPIC, "orders", READ))
    with users.log_in("anne") as annes, users.log_in("eve") as eves:
        anne = Reader(annes, "a")
        settle(anne)
        assert seen_by(anne, topics) == {"orders", "secrets"}
        everything = {"subscribed_topic_regex": ".*", "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        answer = beat(eves, "a", anne.epoch, **everything)
        assert answer.error_code == 0
        told = {topic.topic_id for topic in answer.assignment.topic_partitions}
        assert told <= {topics["orders"]}


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_after_a_restart_an_expression_stands_for_the_same_topics(ending: str, users: BrokerOfUsers) -> None:
    with users.administrator() as admin:
        topics = {name: admin.create(name, 2).topic_id for name in ("orders", "secrets")}
    users.allow("eve", (GROUP, "readers", READ), (TOPIC, "orders", READ))
    with users.log_in("eve") as eves:
        eve = Reader(eves, "b")
        settle(eve)
    getattr(users, ending)()
    users.start()
    with users.administrator() as admin:
        # The heartbeats of another member have the target of all computed anew.
        other = Reader(admin, "a")
        settle(other)
        (of_eve,) = [member for member in described(admin).members if member.member_id == "b"]
        assert {topic.topic_name for topic in of_eve.target_assignment.topic_partitions} == {"orders"}
        assert other.told[topics["secrets"]] == (0, 1)


def test_offsets_of_a_topic_that_no_member_may_see_can_be_deleted(
    broker: GuardedBroker, admin: Asker, stranger: Asker, topics: dict[str, bytes]
) -> None:
    offsets = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    for name in topics:
        wanted = [{"name": name, "partitions": offsets}]
        admin(OFFSET_COMMIT, 9, group_id="readers", generation_id_or_member_epoch=-1, member_id="", topics=wanted)
    broker.add(rule(GROUP, "readers", READ), rule(TOPIC, "orders", DESCRIBE))
    settle(Reader(stranger, "a"))

    def delete(name: str) -> int:
        wanted = [{"name": name, "partitions": [{"partition_index": 0}]}]
        (topic,) = admin(OFFSET_DELETE, group_id="readers", topics=wanted).topics
        return int(topic.partitions[0].error_code)

    assert (delete("orders"), delete("secrets")) == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0)


def test_expressions_count_once_for_each_who_sees_other_topics(users: BrokerOfUsers) -> None:
    for name in ("anne", "bob", "carol"):
        users.allow(name, (GROUP, "readers", READ))
    with users.log_in("anne") as anne, users.log_in("bob") as bob, users.log_in("carol") as carol:
        for number in range(EXPRESSIONS_MAX - 1):
            assert Reader(anne, f"a{number}", f"o{number}").beat() == 0
        # Those about whom there is no rule for topics see the same.
        assert Reader(bob, "b", "o0").beat() == 0
        users.allow("bob", (TOPIC, "orders", READ))
        users.allow("carol", (TOPIC, "secrets", READ))
        assert Reader(carol, "c", "o0").beat() == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert Reader(anne, "d", "o0").beat() == 0


def test_a_topic_that_is_named_needs_the_right_to_describe_it(
    broker: GuardedBroker, stranger: Asker, topics: dict[str, bytes]
) -> None:
    broker.add(rule(GROUP, "readers", READ), rule(CLUSTER, CLUSTER_NAME, Operation.ALL))
    fields = {"group_id": "readers", "member_id": "a", "member_epoch": 0, "topic_partitions": []}
    answer = stranger(
        CONSUMER_GROUP_HEARTBEAT, 1, **fields, subscribed_topic_names=["secrets"], rebalance_timeout_ms=60_000
    )
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
