"""The pages on whatever cluster there is: semel, or with SEMEL_TEST_BOOTSTRAP any other one that speaks Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from browsing import settings_of
from committed_records import commit_offsets
from console_changes import agreed, planned
from eventually import eventually
from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.errors import LogError
from semel.ui.console import access, groups, producers, records, topics, transactions
from semel.ui.console.http import PageRefused
from semel.ui.console.query import Query


@pytest.fixture
def any_cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(settings_of(bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def topic(any_cluster: Cluster) -> str:
    """One with a name that nobody has used; a cluster tells its brokers of it a moment later."""
    name = f"console-{uuid.uuid4()}"
    admin.create_topic(any_cluster, name, 1, {"retention.ms": "-1"})

    def is_there() -> bool:
        try:
            return bool(topics.one_topic(any_cluster, asked(topic=name))["partitions"][0]["end"] is not None)
        except LogError:
            return False

    assert eventually(is_there)
    return name


def asked(**values: object) -> Query:
    return Query({name.rstrip("_"): str(value) for name, value in values.items()})


def test_each_page_says_what_the_clients_have_done(bootstrap: str, any_cluster: Cluster, topic: str) -> None:
    """A record is committed, one aborted, one is left open; the open one is found and aborted from the page."""
    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    name = f"stuck-{topic}"
    first = Producer({**settings, "transactional.id": f"ended-{topic}"})
    first.init_transactions(60)
    for value, is_committed in (("kept", True), ("aborted", False)):
        first.begin_transaction()
        first.produce(topic, value, key="key")
        # What is not on its way yet would be dropped by an abort.
        assert first.flush(60) == 0
        if is_committed:
            first.commit_transaction(60)
        else:
            first.abort_transaction(60)
    stuck = Producer({**settings, "transactional.id": name})
    stuck.init_transactions(60)
    stuck.begin_transaction()
    stuck.produce(topic, "open")
    assert stuck.flush(60) == 0

    commit_offsets(bootstrap, f"reads-{topic}", TopicPartition(topic, 0, 3))

    (listed,) = topics.every_topic(any_cluster, asked(find=topic))["topics"]
    # Each end of a transaction takes an offset.
    assert (listed["partitions"], listed["offsets"], listed["bytes"] > 0) == (1, 5, True)
    one = topics.one_topic(any_cluster, asked(topic=topic))
    (partition,) = one["partitions"]
    assert (partition["begin"], partition["stable"], partition["end"]) == (0, 4, 5)
    assert {"name": "retention.ms", "value": "-1"} in one["settings"]

    shown = records.some_records(any_cluster, asked(topic=topic, from_="earliest"))["records"]
    assert [(one["kind"], one["value"] and one["value"]["text"], one["ending"]) for one in shown] == [
        ("committed", "kept", None),
        ("marker", None, "commit"),
        ("aborted", "aborted", None),
        ("marker", None, "abort"),
        ("held", "open", None),
    ]

    (found,) = transactions.open_transactions(any_cluster, asked(find=name))["transactions"]
    (place,) = found["partitions"]
    assert place["readers"] == [{"group": f"reads-{topic}", "lag": 0, "lag_is_exact": True}]
    assert (place["begun"], place["stable"], place["end"], place["holds"]) == (4, 4, 5, 1)
    shown_producers = producers.of_topic(any_cluster, asked(topic=topic))["producers"]
    assert {one["transactional_id"]: one["begun"] for one in shown_producers}[name] == 4

    # Up to the open transaction the reader has only the marker of the aborted one before it.
    reads = groups.one_group(any_cluster, asked(group=f"reads-{topic}"))
    assert (reads["lag"], reads["lag_is_exact"]) == (0, True)

    assert "is aborted" in agreed(transactions.abort, any_cluster, id=name)
    assert eventually(lambda: topics.one_topic(any_cluster, asked(topic=topic))["partitions"][0]["stable"] == 6)
    assert transactions.open_transactions(any_cluster, asked(find=name))["transactions"] == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_with_its_members_and_set_elsewhere(
    bootstrap: str, any_cluster: Cluster, topic: str, protocol: str
) -> None:
    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer(settings)
    for value in ("one", "two", "three"):
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    name = f"group-{protocol}-{topic}"
    consumer = Consumer(
        {**settings, "group.id": name, "group.protocol": protocol, "auto.offset.reset": "earliest", "client.id": "me"}
    )
    consumer.subscribe([topic])
    assert consumer.consume(1, 120)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    one = groups.one_group(any_cluster, asked(group=name))
    assert (one["kind"], one["lag"], [member["client"] for member in one["members"]]) == (protocol, 2, ["me"])
    assert one["partitions"][0]["member"] == one["members"][0]["id"]
    consumer.close()
    assert eventually(lambda: groups.one_group(any_cluster, asked(group=name))["member_count"] == 0)
    plan = planned(groups.reset, any_cluster, group=name, to="latest")
    assert plan["rows"] == [(f"{topic}-0", 1, 3, "2 offsets are skipped")]
    agreed(groups.reset, any_cluster, plan, group=name, to="latest")
    (listed,) = groups.every_group(any_cluster, asked(find=name))["groups"]
    assert (listed["lag"], listed["state"]) == (0, "Empty")


def test_topics_and_groups_are_changed_and_deleted(bootstrap: str, any_cluster: Cluster, topic: str) -> None:
    new = f"new-{topic}"
    wish = {"topic": new, "partitions": 2, "settings": "retention.ms=60000"}
    agreed(topics.create, any_cluster, **wish)
    assert eventually(lambda: new in any_cluster.every_topic())
    with pytest.raises(LogError, match=new):
        planned(topics.create, any_cluster, **wish)
    with pytest.raises(LogError, match=r"retention\.ms"):
        planned(topics.configure, any_cluster, topic=new, setting="retention.ms", value="soon")
    old = planned(topics.delete, any_cluster, topic=new)
    plan = planned(topics.configure, any_cluster, topic=new, setting="retention.ms", value="70000")
    assert plan["rows"] == [("retention.ms", "60000", "70000")]
    agreed(topics.configure, any_cluster, plan, topic=new, setting="retention.ms", value="70000")
    agreed(topics.grow, any_cluster, topic=new, partitions=3)
    assert eventually(lambda: any_cluster.topics([new])[new].partitions == 3)
    with pytest.raises(PageRefused, match="look again"):
        agreed(topics.delete, any_cluster, old, topic=new)
    agreed(topics.delete, any_cluster, topic=new)
    assert eventually(lambda: new not in any_cluster.every_topic())

    name = f"reads-{topic}"
    commit_offsets(bootstrap, name, TopicPartition(topic, 0, 0))
    agreed(groups.delete, any_cluster, group=name)
    assert eventually(lambda: groups.every_group(any_cluster, asked(find=name))["count"] == 0)


def test_users_are_added_and_removed(any_cluster: Cluster) -> None:
    user = f"user-{uuid.uuid4()}"
    plan = planned(access.set_password, any_cluster, user=user)
    agreed(access.set_password, any_cluster, plan, user=user, password="a secret")
    assert eventually(lambda: access.everybody(any_cluster, asked(find=user))["users"]["count"] == 1)
    agreed(access.remove_user, any_cluster, user=user)
    assert eventually(lambda: access.everybody(any_cluster, asked(find=user))["users"]["count"] == 0)


def test_rules_are_added_and_removed_where_they_are_in_force(any_cluster: Cluster) -> None:
    rule = {"principal": f"User:{uuid.uuid4()}", "operations": "read describe", "resource": "topic:orders"}
    told = access.everybody(any_cluster, asked(find=rule["principal"]))["rules"]
    if "error" in told:
        assert "SECURITY_DISABLED" in told["error"], "Apache Kafka without an authorizer has no rules"
        return
    agreed(access.add_rule, any_cluster, **rule)
    assert eventually(lambda: access.everybody(any_cluster, asked(find=rule["principal"]))["rules"]["count"] == 2)
    agreed(access.remove_rule, any_cluster, **rule)
    assert eventually(lambda: access.everybody(any_cluster, asked(find=rule["principal"]))["rules"]["count"] == 0)
