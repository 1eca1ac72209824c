"""The catalog of topics: its promises one by one, then a machine that holds it against a naive model."""

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from refusal import refused
from semel.log.core.configs import InvalidConfig, parse
from semel.log.core.entries import ConfigsChanged, PartitionsAdded, TopicCreated, TopicDeleted
from semel.log.core.topics import Catalog, CatalogEntry, Topic, TopicRefused
from semel.wire import refusals


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def create(catalog: Catalog, name: str, partition_count: int = 1, **configs: str) -> Topic:
    settled = {key.replace("_", "."): value for key, value in configs.items()}
    fresh = topic_id(len(catalog) + 1000 * sum(name.encode()))
    return catalog.apply(catalog.decide_create(name, partition_count, settled, fresh, 0))


def delete(catalog: Catalog, name: str, id_blocks: int, at_ms: int = 0) -> Topic:
    return catalog.apply(catalog.decide_delete(name, id_blocks, at_ms))


def test_a_topic_that_was_made_is_found_by_name_by_id_and_by_number() -> None:
    catalog = Catalog()
    entry = catalog.decide_create("orders", 3, {"retention.ms": "5"}, topic_id(9), 77)
    assert catalog.named("orders") is None
    topic = catalog.apply(entry)
    assert topic == Topic(
        0, "orders", topic_id(9), 3, {"retention.ms": "5"}, parse({"retention.ms": "5"}), created_at_ms=77
    )
    assert catalog.named("orders") is catalog.identified(topic_id(9)) is catalog.numbered(0) is topic
    assert list(catalog) == [topic]
    assert catalog.partition_count == 3


def test_deciding_alone_changes_nothing() -> None:
    catalog = Catalog()
    create(catalog, "orders")
    before = catalog.snapshot()
    catalog.decide_create("payments", 1, {}, topic_id(5), 0)
    catalog.decide_delete("orders", 5, 0)
    catalog.decide_partitions("orders", 2)
    catalog.decide_configs("orders", {"retention.ms": "5"})
    assert catalog.snapshot() == before


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-", "__consumer"])
def test_names_that_kafka_allows_are_allowed(name: str) -> None:
    assert create(Catalog(), name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 250,
        "a/b",
        "a b",
        "é",
        "a\n",
        "a\0",
        "../etc",
        pytest.param("x" * 1_000_000, id="a megabyte"),
    ],
)
def test_names_that_kafka_forbids_are_refused(name: str) -> None:
    with refused(refusals.INVALID_TOPIC_EXCEPTION) as caught:
        Catalog().decide_create(name, 1, {}, topic_id(1), 0)
    assert len(caught.value.message) < 2000


def test_names_that_differ_in_dots_and_underscores_alone_are_refused() -> None:
    catalog = Catalog()
    create(catalog, "a.b_c")
    with refused(refusals.INVALID_TOPIC_EXCEPTION, r"'a_b\.c' differs from an existing topic in"):
        catalog.decide_create("a_b.c", 1, {}, topic_id(2), 0)
    create(catalog, "a-b_c")
    delete(catalog, "a.b_c", 0)
    create(catalog, "a_b.c")


def test_a_topic_that_exists_is_not_made_again() -> None:
    catalog = Catalog()
    create(catalog, "orders")
    with refused(refusals.TOPIC_ALREADY_EXISTS, "'orders' exists already"):
        catalog.decide_create("orders", 1, {}, topic_id(2), 0)


@pytest.mark.parametrize("partition_count", [0, -1, -(2**31)])
def test_a_topic_has_at_least_one_partition(partition_count: int) -> None:
    with refused(refusals.INVALID_PARTITIONS, "at least one partition"):
        Catalog().decide_create("orders", partition_count, {}, topic_id(1), 0)


def test_a_billion_partitions_are_refused() -> None:
    with refused(refusals.INVALID_PARTITIONS, "more than 20000 in all topics together"):
        Catalog().decide_create("orders", 10**9, {}, topic_id(1), 0)


def test_the_limit_on_partitions_counts_all_topics_together() -> None:
    catalog = Catalog(partitions_max=5)
    create(catalog, "one", 2)
    create(catalog, "two", 2)
    with refused(refusals.INVALID_PARTITIONS, "more than 5"):
        catalog.decide_create("three", 2, {}, topic_id(7), 0)
    with refused(refusals.INVALID_PARTITIONS, "more than 5"):
        catalog.decide_partitions("one", 4)
    delete(catalog, "two", 0)
    catalog.apply(catalog.decide_partitions("one", 5))
    assert catalog.partition_count == 5


def test_the_limit_on_topics_is_held_and_a_deletion_makes_room() -> None:
    catalog = Catalog(topics_max=2)
    create(catalog, "one")
    create(catalog, "two")
    with refused(refusals.POLICY_VIOLATION, "there are 2 topics"):
        catalog.decide_create("three", 1, {}, topic_id(3), 0)
    delete(catalog, "one", 0)
    create(catalog, "three")


@pytest.mark.parametrize("replication_factor", [0, 2, 3, -2, 32767])
def test_more_than_one_copy_is_refused(replication_factor: int) -> None:
    with refused(refusals.INVALID_REPLICATION_FACTOR, f"replication factor {replication_factor}"):
        Catalog().decide_create("orders", 1, {}, topic_id(1), 0, replication_factor=replication_factor)


@pytest.mark.parametrize("replication_factor", [1, -1])
def test_one_copy_or_the_default_is_what_there_is(replication_factor: int) -> None:
    Catalog().decide_create("orders", 1, {}, topic_id(1), 0, replication_factor=replication_factor)


def test_a_topic_with_a_configuration_that_cannot_be_kept_is_refused() -> None:
    with refused(refusals.INVALID_CONFIG, r"cleanup\.policy"):
        Catalog().decide_create("orders", 1, {"cleanup.policy": "shred"}, topic_id(1), 0)


@pytest.mark.parametrize("wrong", [b"", b"short", bytes(17)])
def test_a_topic_id_that_is_none_is_the_callers_bug(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Catalog().decide_create("orders", 1, {}, wrong, 0)


def test_a_topic_id_in_use_is_the_callers_bug() -> None:
    catalog = Catalog()
    topic = create(catalog, "orders")
    with pytest.raises(ValueError, match="fresh id"):
        catalog.decide_create("payments", 1, {}, topic.topic_id, 0)


def test_what_does_not_exist_can_neither_be_deleted_nor_changed() -> None:
    catalog = Catalog()
    for decide in (
        lambda: catalog.decide_delete("orders", 0, 0),
        lambda: catalog.decide_partitions("orders", 2),
        lambda: catalog.decide_configs("orders", {}),
    ):
        with refused(refusals.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'orders'"):
            decide()


def test_a_deleted_topic_is_found_no_more_and_its_namesake_is_another() -> None:
    catalog = Catalog()
    first = create(catalog, "orders", 4)
    assert delete(catalog, "orders", 0) is first
    assert catalog.named("orders") is None
    assert catalog.identified(first.topic_id) is None
    assert catalog.numbered(first.number) is None
    assert (len(catalog), catalog.partition_count) == (0, 0)
    second = catalog.apply(catalog.decide_create("orders", 1, {}, topic_id(2), 0))
    assert second.number == first.number + 1


def test_a_number_is_never_used_again_even_after_a_restart() -> None:
    catalog = Catalog()
    create(catalog, "orders")
    delete(catalog, "orders", 0)
    restored = Catalog()
    restored.restore(catalog.snapshot())
    assert create(restored, "orders").number == 1


def test_numbers_count_what_was_ever_made_and_not_what_is_there() -> None:
    catalog = Catalog()
    for expected in range(4):
        assert create(catalog, "orders").number == expected
        delete(catalog, "orders", 0)
    assert [create(catalog, name).number for name in ("a", "b")] == [4, 5]


def test_an_entry_that_takes_a_number_again_is_not_believed() -> None:
    catalog = Catalog()
    create(catalog, "orders")
    for taken in (
        TopicCreated(0, "payments", topic_id(3), 1, {}, 0),
        TopicCreated(1, "orders", topic_id(3), 1, {}, 0),
        TopicCreated(1, "payments", catalog.existing("orders").topic_id, 1, {}, 0),
    ):
        with pytest.raises(ValueError, match="is taken"):
            catalog.check(taken)


@pytest.mark.parametrize("entry", [TopicDeleted(4, 0, 0), PartitionsAdded(4, 2), ConfigsChanged(4, {})])
def test_an_entry_about_a_topic_that_is_not_there_is_not_believed(entry: CatalogEntry) -> None:
    with pytest.raises(ValueError, match="no topic has number 4"):
        Catalog().check(entry)


@pytest.mark.parametrize("partition_count", [3, 2, 0, -1])
def test_a_topic_only_grows(partition_count: int) -> None:
    catalog = Catalog()
    create(catalog, "orders", 3)
    with refused(refusals.INVALID_PARTITIONS, f"has 3 partitions; {partition_count} is not more"):
        catalog.decide_partitions("orders", partition_count)


def test_whoever_holds_a_topic_sees_it_change() -> None:
    catalog = Catalog()
    topic = create(catalog, "orders", 1)
    catalog.apply(catalog.decide_partitions("orders", 3))
    catalog.apply(catalog.decide_configs("orders", {"max.message.bytes": "99"}))
    assert topic.partition_count == catalog.partition_count == 3
    assert topic.configs == {"max.message.bytes": "99"}
    assert topic.parsed.max_message_bytes == 99


def test_new_configurations_replace_all_that_were_set() -> None:
    catalog = Catalog()
    topic = create(catalog, "orders", retention_ms="5")
    catalog.apply(catalog.decide_configs("orders", {"segment.bytes": "5000"}))
    assert topic.configs == {"segment.bytes": "5000"}
    assert topic.parsed.retention_ms == 604800000


def test_configurations_that_cannot_be_kept_change_nothing() -> None:
    catalog = Catalog()
    topic = create(catalog, "orders", retention_ms="5")
    with pytest.raises(InvalidConfig):
        catalog.decide_configs("orders", {"retention.ms": "no"})
    assert topic.configs == {"retention.ms": "5"}


def test_lower_limits_than_before_do_not_keep_a_catalog_from_coming_back() -> None:
    catalog = Catalog()
    create(catalog, "one", 5)
    create(catalog, "two", 5)
    restored = Catalog(topics_max=1, partitions_max=1)
    restored.restore(catalog.snapshot())
    assert len(restored) == 2
    with pytest.raises(TopicRefused):
        restored.decide_create("three", 1, {}, topic_id(3), 0)


def test_producers_older_than_a_deletion_are_met_with_lenience_under_that_name_alone() -> None:
    catalog = Catalog()
    create(catalog, "orders")
    assert catalog.lenient_blocks("orders") == 0
    delete(catalog, "orders", 1007)
    create(catalog, "orders")
    assert catalog.lenient_blocks("orders") == 1007
    assert catalog.lenient_blocks("payments") == 0


def test_the_latest_deletion_of_a_name_counts() -> None:
    catalog = Catalog()
    for id_blocks in (5, 9):
        create(catalog, "orders")
        delete(catalog, "orders", id_blocks)
    assert catalog.lenient_blocks("orders") == 9


def test_a_deletion_is_forgotten_once_its_producers_have_expired_and_not_before() -> None:
    catalog = Catalog()
    create(catalog, "orders")
    delete(catalog, "orders", 5, at_ms=1000)
    catalog.expire(now_ms=1099, expiration_ms=100)
    assert catalog.lenient_blocks("orders") == 5
    catalog.expire(now_ms=1100, expiration_ms=100)
    assert catalog.lenient_blocks("orders") == 0


def test_too_many_deleted_names_make_the_catalog_more_lenient_never_less() -> None:
    catalog = Catalog(deleted_names_max=2)
    for number, name in enumerate(["one", "two", "three"]):
        create(catalog, name)
        delete(catalog, name, 10 + number, at_ms=1000 + number)
    assert catalog.lenient_blocks("one") == 10
    assert catalog.lenient_blocks("two") == 11
    assert catalog.lenient_blocks("three") == 12
    assert catalog.lenient_blocks("never heard of") == 10
    assert len(catalog.snapshot()["deleted"]) == 2


def test_the_floor_outlives_a_restart_and_expires_like_the_names_it_was_made_of() -> None:
    catalog = Catalog(deleted_names_max=0)
    create(catalog, "orders")
    delete(catalog, "orders", 5, at_ms=1000)
    catalog.expire(now_ms=1099, expiration_ms=100)
    assert catalog.lenient_blocks("payments") == 5
    restored = Catalog(deleted_names_max=0)
    restored.restore(catalog.snapshot())
    assert restored.lenient_blocks("payments") == 5
    catalog.expire(now_ms=1100, expiration_ms=100)
    assert catalog.lenient_blocks("payments") == 0


def test_the_floor_lasts_as_long_as_any_of_its_deletions_though_the_clock_was_set_back_between_them() -> None:
    """Or a producer whose topic was deleted and made anew would be told that records are missing."""
    catalog = Catalog(deleted_names_max=0)
    for name, id_blocks, at_ms in (("orders", 5, 1000), ("payments", 6, 500)):
        create(catalog, name)
        delete(catalog, name, id_blocks, at_ms=at_ms)
    catalog.expire(now_ms=1099, expiration_ms=100)
    assert catalog.lenient_blocks("orders") == 6


def test_a_name_deleted_again_is_the_last_to_be_folded() -> None:
    catalog = Catalog(deleted_names_max=2)
    for name, id_blocks in [("one", 1), ("two", 2), ("one", 3), ("three", 4)]:
        create(catalog, name)
        delete(catalog, name, id_blocks)
    assert [kept["name"] for kept in catalog.snapshot()["deleted"]] == ["one", "three"]
    assert catalog.lenient_blocks("two") == 2


NAMES = st.sampled_from(["a", "b", "c", "d", "a.b", "a_b", "..", "x/y"])
# Mostly what is allowed, so that the machine gets somewhere.
PARTITION_COUNTS = st.sampled_from([1, 1, 1, 2, 3, 9, 0, -1])
RETENTIONS = st.sampled_from([None, None, "5", "-1", "no"])
EXPIRATION_MS = 50


class CatalogAgainstModel(RuleBasedStateMachine):
    """The catalog with small limits beside a list of everything that ever happened.

    The model knows no dictionaries, no floor and no forgetting: it looks through its list. For `lenient_blocks` it
    knows a lower bound (what must not be forgotten) and an upper one (no id is lenient that no deletion speaks of).
    """

    topics_max = 3
    partitions_max = 8
    deleted_names_max = 2

    @initialize()
    def begin(self) -> None:
        self.catalog = self.fresh()
        self.alive: list[dict[str, Any]] = []
        self.deletions: list[tuple[str, int, int]] = []
        self.created_count = 0
        self.id_blocks = 0
        self.now_ms = 0

    def fresh(self) -> Catalog:
        return Catalog(
            topics_max=self.topics_max,
            partitions_max=self.partitions_max,
            deleted_names_max=self.deleted_names_max,
        )

    def find(self, name: str) -> dict[str, Any] | None:
        return next((topic for topic in self.alive if topic["name"] == name), None)

    def partitions(self) -> int:
        return sum(topic["partition_count"] for topic in self.alive)

    @rule(name=NAMES, partition_count=PARTITION_COUNTS, retention=RETENTIONS)
    def create(self, name: str, partition_count: int, retention: str | None) -> None:
        configs = {"retention.ms": retention} if retention is not None else {}
        expected = None
        if name in ("..", "x/y"):
            expected = refusals.INVALID_TOPIC_EXCEPTION
        elif self.find(name):
            expected = refusals.TOPIC_ALREADY_EXISTS
        elif any(topic["name"].replace(".", "_") == name.replace(".", "_") for topic in self.alive):
            expected = refusals.INVALID_TOPIC_EXCEPTION
        elif retention == "no":
            expected = refusals.INVALID_CONFIG
        elif len(self.alive) >= self.topics_max:
            expected = refusals.POLICY_VIOLATION
        elif partition_count < 1 or self.partitions() + partition_count > self.partitions_max:
            expected = refusals.INVALID_PARTITIONS
        fresh = topic_id(self.created_count + 1)
        if expected is not None:
            with refused(expected):
                self.catalog.decide_create(name, partition_count, configs, fresh, self.now_ms)
            return
        topic = self.catalog.apply(self.catalog.decide_create(name, partition_count, configs, fresh, self.now_ms))
        self.alive.append(
            {
                "number": self.created_count,
                "name": name,
                "topic_id": fresh,
                "partition_count": partition_count,
                "configs": configs,
                "created_at_ms": self.now_ms,
            }
        )
        self.created_count += 1
        assert topic.name == name

    @rule(name=NAMES, producer_ids=st.integers(0, 3))
    def delete_what_may_not_exist(self, name: str, producer_ids: int) -> None:
        self.delete(name, producer_ids)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), producer_ids=st.integers(0, 3))
    def delete_what_exists(self, data: st.DataObject, producer_ids: int) -> None:
        self.delete(data.draw(st.sampled_from(self.alive))["name"], producer_ids)

    def delete(self, name: str, producer_ids: int) -> None:
        self.id_blocks += producer_ids
        topic = self.find(name)
        if topic is None:
            with refused(refusals.UNKNOWN_TOPIC_OR_PARTITION):
                self.catalog.decide_delete(name, self.id_blocks, self.now_ms)
            return
        self.catalog.apply(self.catalog.decide_delete(name, self.id_blocks, self.now_ms))
        self.alive.remove(topic)
        self.deletions.append((name, self.id_blocks, self.now_ms))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), partition_count=st.integers(0, 9))
    def grow(self, data: st.DataObject, partition_count: int) -> None:
        topic = data.draw(st.sampled_from(self.alive))
        more = partition_count - topic["partition_count"]
        if more <= 0 or self.partitions() + more > self.partitions_max:
            with refused(refusals.INVALID_PARTITIONS):
                self.catalog.decide_partitions(topic["name"], partition_count)
            return
        self.catalog.apply(self.catalog.decide_partitions(topic["name"], partition_count))
        topic["partition_count"] = partition_count

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), retention_bytes=st.integers(-1, 5))
    def configure(self, data: st.DataObject, retention_bytes: int) -> None:
        topic = data.draw(st.sampled_from(self.alive))
        topic["configs"] = {"retention.bytes": str(retention_bytes)}
        self.catalog.apply(self.catalog.decide_configs(topic["name"], topic["configs"]))

    @rule(elapsed_ms=st.integers(0, 40))
    def let_time_pass(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.catalog.expire(self.now_ms, EXPIRATION_MS)

    @rule()
    def restart(self) -> None:
        kept = json.loads(json.dumps(self.catalog.snapshot()))
        self.catalog = self.fresh()
        self.catalog.restore(kept)
        assert self.catalog.snapshot() == kept

    @invariant()
    def the_topics_are_those_of_the_model(self) -> None:
        assert len(self.catalog) == len(self.alive)
        assert self.catalog.partition_count == self.partitions()
        for expected, topic in zip(self.alive, self.catalog, strict=True):
            assert {key: getattr(topic, key) for key in expected} == expected
            assert topic.parsed == parse(expected["configs"])
            assert self.catalog.named(topic.name) is topic
            assert self.catalog.identified(topic.topic_id) is topic
            assert self.catalog.numbered(topic.number) is topic
        for name in ("a", "b", "a.b", "a_b"):
            assert (self.catalog.named(name) is None) == (self.find(name) is None)

    @invariant()
    def no_deletion_is_forgotten_before_its_producers_expire(self) -> None:
        valid = [deletion for deletion in self.deletions if self.now_ms - deletion[2] < EXPIRATION_MS]
        ever = max((id_blocks for _, id_blocks, _ in self.deletions), default=0)
        for name in ("a", "b", "a.b", "never"):
            least = max((below for deleted, below, _ in valid if deleted == name), default=0)
            assert least <= self.catalog.lenient_blocks(name) <= ever

    @invariant()
    def the_memory_of_deletions_is_bounded(self) -> None:
        assert len(self.catalog.snapshot()["deleted"]) <= self.deleted_names_max


TestCatalogAgainstModel = CatalogAgainstModel.TestCase
TestCatalogAgainstModel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
