"""What the pages of groups and producers say is what the cluster says; a reset does what its preview has shown."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, TopicPartition

from asking import Asker
from browsing import Browser, browse, settings_of
from console_changes import agreed, planned
from eventually import eventually
from producing import deliver, idempotent_producer
from relayed_cluster import RelayedCluster
from semel.client import admin, lag
from semel.client.cluster import GROUP, Cluster
from semel.client.errors import LogError, RefusedByBroker
from semel.client.groups import Listed
from semel.client.places import TopicPartition as TopicPlace
from semel.log.broker.limits import Limits
from semel.testing.broker import FaultyBroker
from semel.ui.cli import main
from semel.ui.console import groups, overview, producers
from semel.ui.console.http import PageRefused
from semel.ui.console.query import NAME_BYTES_MAX, Query
from semel.wire.errors import ErrorCode
from semel.wire.records import Record
from semel.wire.versions import DELETE_RECORDS
from transacting import TransactionalProducer, committed

HOSTILE = "<img src=x onerror=alert(1)>"


def asked(**values: object) -> Query:
    return Query({name: str(value) for name, value in values.items()})


def commit(broker: FaultyBroker, group: str, topic: str, **offsets: int) -> None:
    """As a consumer that chooses its partitions itself: p0=3 commits 3 in partition 0."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, int(name[1:]), offset) for name, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_a_group_is_listed_with_its_lag_up_to_what_is_committed(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.create_topic("payments", 2)
    broker.seed("payments", "0", "1", "2")
    producer = TransactionalProducer(ask)
    producer.claim()
    producer.add("payments")
    producer.send("payments", "open")
    commit(broker, "billing", "payments", p0=1, p1=0)
    commit(broker, HOSTILE, "payments", p0=3)
    answer = groups.every_group(cluster, asked())
    shown = {one["name"]: (one["kind"], one["state"], one["partitions"], one["lag"]) for one in answer["groups"]}
    assert shown == {"billing": ("classic", "Empty", 2, 2), HOSTILE: ("classic", "Empty", 1, 0)}
    assert groups.every_group(cluster, asked(find="BILL"))["count"] == 1
    one = groups.one_group(cluster, asked(group="billing"))
    assert (one["lag"], one["count"], one["member_count"]) == (2, 2, 0)
    first, second = one["partitions"]
    assert {name: first[name] for name in ("begin", "committed", "stable", "end", "lag", "member")} == {
        "begin": 0,
        "committed": 1,
        "stable": 3,
        "end": 4,
        "lag": 2,
        "member": None,
    }
    assert second["lag"] == 0
    with pytest.raises(LogError, match="there is no group"):
        groups.one_group(cluster, asked(group="nobody"))


def test_the_lag_is_counted_in_committed_records(
    broker: FaultyBroker, ask: Asker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers and aborted records take offsets, and no reader of committed records ever gets them."""
    broker.create_topic("payments", 2)
    ask.produce("payments", [Record(b"0"), Record(b"1"), Record(b"2")], codec="gzip")
    for is_committed in (False, True, False, True):
        writer = TransactionalProducer(ask, "billing")
        writer.claim()
        writer.add("payments")
        writer.send("payments", "value")
        writer.end(committed=is_committed)
    ask.produce("payments", [Record(b"last")])
    waits = TransactionalProducer(ask, "open")
    waits.claim()
    waits.add("payments")
    waits.send("payments", "held back")
    # Some of the first batch was read already.
    commit(broker, "billing", "payments", p0=1, p1=0)
    one = groups.one_group(cluster, asked(group="billing"))
    assert (one["lag"], one["lag_is_exact"]) == (5, True)
    assert [(place["lag"], place["lag_is_exact"]) for place in one["partitions"]] == [(5, True), (0, True)]
    assert committed(ask, "payments")[1:] == ["1", "2", "value", "value", "last"]
    # Where the bytes do not suffice, it is a bound: the two records of the first batch, and the nine offsets after it.
    monkeypatch.setattr(lag, "FIRST_BYTES", 1)
    standing = lag.Standing(TopicPlace("payments", 0), 1)
    assert lag.lags(cluster, [standing], {standing.where: 12}, bytes_max=1) == {standing: lag.Lag(11, False)}
    standing = lag.Standing(TopicPlace("payments", 0), 3)
    assert lag.lags(cluster, [standing], {standing.where: 12}, bytes_max=1) == {standing: lag.Lag(7 + 1, False)}


def test_a_group_that_is_behind_the_beginning_of_the_log_has_what_is_left_to_read(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.create_topic("payments")
    broker.seed("payments", "0", "1", "2")
    commit(broker, "billing", "payments", p0=0)
    ask(
        DELETE_RECORDS,
        timeout_ms=60_000,
        topics=[{"name": "payments", "partitions": [{"partition_index": 0, "offset": 2}]}],
    )
    one = groups.one_group(cluster, asked(group="billing"))
    assert (one["lag"], one["lag_is_exact"]) == (1, True)
    (listed,) = groups.every_group(cluster, asked())["groups"]
    assert (listed["lag"], listed["lag_is_exact"]) == (1, True)


@pytest.mark.parametrize("is_committed", [True, False], ids=["after a commit", "after an abort"])
def test_a_group_that_has_read_everything_is_behind_on_no_page(
    broker: FaultyBroker, ask: Asker, cluster: Cluster, is_committed: bool
) -> None:
    """The marker at the end takes an offset that no consumer ever commits by itself."""
    broker.create_topic("payments", 2)
    broker.seed("payments", "0", "1")
    writer = TransactionalProducer(ask, "billing")
    writer.claim()
    writer.add("payments")
    writer.send("payments", "last")
    writer.end(committed=is_committed)
    commit(broker, "billing", "payments", p0=3 if is_committed else 2)
    (listed,) = groups.every_group(cluster, asked())["groups"]
    assert (listed["lag"], listed["lag_is_exact"]) == (0, True)
    one = groups.one_group(cluster, asked(group="billing"))
    assert (one["lag"], one["partitions"][0]["lag"], one["partitions"][0]["end"]) == (0, 0, 4)
    told = overview.now(cluster, asked())["groups"]
    assert (told["behind"], told["most"]) == (0, [])


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_a_partition_that_cannot_be_read_has_a_bound_for_its_lag_and_the_others_are_counted(
    broker: FaultyBroker, ask: Asker, code: ErrorCode
) -> None:
    """A lag of 0 is said only of what was read."""
    broker.create_topic("payments", 2)
    ask.produce("payments", [Record(b"0")])
    ask.produce("payments", [Record(b"0"), Record(b"1")], partition=1)
    first, second = (lag.Standing(TopicPlace("payments", number), 0) for number in (0, 1))
    with RelayedCluster(broker.bootstrap) as relayed, Cluster(settings_of(relayed.bootstrap)) as cluster:
        relayed.fetch_errors = [code]
        found = lag.lags(cluster, [second, first], {first.where: 1, second.where: 2})
    assert found == {first: lag.Lag(1, is_exact=False), second: lag.Lag(2)}
    assert lag.total(found.values()) == lag.Lag(3, is_exact=False)


def test_a_partition_without_a_last_stable_offset_has_no_lag(cluster: Cluster) -> None:
    assert lag.lags(cluster, [lag.Standing(TopicPlace("deleted", 0), 1)], {}) == {}


@pytest.mark.parametrize("name", ["g" * NAME_BYTES_MAX, "é" * (NAME_BYTES_MAX // 2)])
def test_a_group_is_opened_and_reset_whatever_the_length_of_its_name(name: str) -> None:
    """Up to 32,767 bytes, which is what the protocol carries, and which take three times as many in an address."""

    async def story(browser: Browser) -> None:
        await browser.enter()
        at = "?" + urlencode({"group": name})
        assert (await browser.get(f"/group{at}")).status == 200
        assert (await browser.get(f"/api/group{at}")).told["name"] == name
        assert (await browser.change("reset", {"group": name, "to": "earliest"})).status == 200
        assert (await browser.get(f"/api/group{at}")).told["lag"] == 1
        longer = await browser.get("/api/group?" + urlencode({"group": name + "éé"}))
        assert (longer.status, "32767" in longer.told["error"]) == (400, True)

    with FaultyBroker(limits=Limits(group_name_bytes_max=NAME_BYTES_MAX)) as broker:
        broker.create_topic("payments")
        broker.seed("payments", "0")
        commit(broker, name, "payments", p0=1)
        browse(broker.bootstrap, story, allow_changes=True)


def test_a_kind_of_group_that_the_console_does_not_know_is_named_and_asked_nothing(
    broker: FaultyBroker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Apache Kafka the request for the members of another kind is refused."""
    coordinator = cluster.coordinator("streams", GROUP)
    known = {"streams": Listed("streams", "streams", "Stable", coordinator)}
    monkeypatch.setattr(groups.groups, "listed", lambda cluster: known)
    monkeypatch.setattr(groups.groups, "members", pytest.fail)
    one = groups.one_group(cluster, asked(group="streams"))
    assert (one["kind"], one["is_known"], one["members"]) == ("streams", False, [])


def test_a_group_whose_topic_was_deleted_is_shown_without_it(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments")
    broker.create_topic("kept")
    broker.seed("kept", "0")
    commit(broker, "billing", "payments", p0=0)
    commit(broker, "billing", "kept", p0=0)
    admin.delete_topic(cluster, "payments")
    (one,) = groups.every_group(cluster, asked())["groups"]
    assert one["lag"] == 1
    assert groups.one_group(cluster, asked(group="billing"))["lag"] == 1


def preview(cluster: Cluster, **values: object) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = planned(groups.reset, cluster, group="billing", **values)["rows"]
    return rows


def test_a_reset_does_what_its_preview_has_shown(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments", 2)
    broker.seed("payments", "0", "1", "2")
    commit(broker, "billing", "payments", p0=3)
    assert preview(cluster, to="latest") == [("payments-0", 3, 3, "stays")]
    assert preview(cluster, to="1", topic="payments") == [
        ("payments-0", 3, 1, "2 offsets are read again"),
        ("payments-1", "nothing", 0, "begins there"),
    ]
    assert preview(cluster, to="2100-01-01T00:00:00Z") == [("payments-0", 3, 3, "stays")]
    wish = {"group": "billing", "to": "earliest"}
    shown = planned(groups.reset, cluster, **wish)
    assert shown["rows"] == [("payments-0", 3, 0, "3 offsets are read again")]
    assert "is set" in agreed(groups.reset, cluster, shown, **wish)
    assert groups.every_group(cluster, asked())["groups"][0]["lag"] == 3
    with pytest.raises(PageRefused, match="look again"):
        agreed(groups.reset, cluster, shown, **wish)


def test_a_reset_sets_the_offsets_that_were_shown_although_the_partition_has_grown(
    broker: FaultyBroker, cluster: Cluster
) -> None:
    broker.create_topic("payments")
    broker.seed("payments", "0", "1")
    commit(broker, "billing", "payments", p0=0)
    shown = planned(groups.reset, cluster, group="billing", to="latest")
    broker.seed("payments", "2")
    agreed(groups.reset, cluster, shown, group="billing", to="latest")
    (place,) = groups.one_group(cluster, asked(group="billing"))["partitions"]
    assert (place["committed"], place["lag"]) == (2, 1)


@pytest.mark.parametrize(
    ("to", "committed_at", "skipped"),
    [("latest", 1, 2), ("latest", 4, 1), ("4", 1, 1), ("3", 1, None), ("earliest", 5, None), ("latest", None, 2)],
)
def test_a_preview_says_how_many_offsets_it_skips_that_an_open_transaction_holds_back(
    broker: FaultyBroker, ask: Asker, cluster: Cluster, to: str, committed_at: int | None, skipped: int | None
) -> None:
    """As in Kafka's own tool, latest is the end of the partition, which is behind what nobody can read yet."""
    broker.create_topic("payments")
    broker.seed("payments", "0", "1", "2")
    producer = TransactionalProducer(ask)
    producer.claim()
    producer.add("payments")
    producer.send("payments", "open")
    broker.seed("payments", "waits")
    if committed_at is not None:
        commit(broker, "billing", "payments", p0=committed_at)
    told = planned(groups.reset, cluster, group="billing", to=to, topic="payments")
    if to == "latest":
        assert told["rows"][0][:3] == ("payments-0", "nothing" if committed_at is None else committed_at, 5)
    if skipped is None:
        assert told["warns"] == []
    else:
        (warning,) = told["warns"]
        assert f": {skipped} in payments-0 from offset 3 on." in warning


@pytest.mark.parametrize("group", ["billing", "x; touch owned", "$(touch owned)", "--to=latest", "it's"])
def test_the_command_beside_a_preview_does_the_same_and_no_name_becomes_a_script(
    broker: FaultyBroker, cluster: Cluster, group: str, tmp_path: Path
) -> None:
    """A person who may change nothing from the page pastes it into a shell."""
    broker.create_topic("payments")
    broker.create_topic("other")
    commit(broker, group, "payments", p0=0)
    commit(broker, group, "other", p0=0)
    broker.seed("payments", "0", "1", "2")
    broker.seed("other", "0")
    told = planned(groups.reset, cluster, group=group, to="latest", topic="payments")
    # Of the shell, only how it takes words apart.
    shell = f"set -- {told['command']}; shift; printf '%s\\0' \"$@\""
    words = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    assert list(tmp_path.iterdir()) == []
    verb, noun, *rest = words.rstrip("\0").split("\0")
    with pytest.raises(SystemExit) as ended:
        main([verb, noun, f"--bootstrap={broker.bootstrap}", *rest])
    assert ended.value.code in (0, None)
    assert told["rows"] == [("payments-0", 0, 3, "3 offsets are skipped")]
    now = groups.one_group(cluster, asked(group=group))["partitions"]
    assert [(one["topic"], one["committed"]) for one in now] == [("other", 0), ("payments", 3)]


def test_a_group_with_members_is_not_moved(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments")
    broker.seed("payments", "0")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": HOSTILE, "log_level": 0})
    consumer.subscribe(["payments"])
    assert consumer.consume(1, 60)
    consumer.commit(asynchronous=False)
    one = groups.one_group(cluster, asked(group="billing"))
    (member,) = one["members"]
    assert (member["client"], member["partitions"], one["state"]) == (HOSTILE, 1, "Stable")
    assert one["partitions"][0]["member"] == member["id"]
    with pytest.raises(RefusedByBroker, match="has members"):
        agreed(groups.reset, cluster, group="billing", to="earliest")
    consumer.close()


@pytest.mark.parametrize("to", ["", "soon", "-1", "99999-01-01"])
def test_a_place_that_is_none_is_one_line(broker: FaultyBroker, cluster: Cluster, to: str) -> None:
    broker.create_topic("payments")
    with pytest.raises(LogError, match="neither earliest"):
        preview(cluster, to=to, topic="payments")


@pytest.mark.parametrize(
    "steps",
    [
        "[]",
        "{}",
        "1",
        "[[1]]",
        '[["payments", 0, -1]]',
        '[["payments", "x", 0]]',
        '[["payments", 0, 1e999]]',
        '[["payments", 0, 1e30]]',
        '[["payments", 0, null]]',
        '[["payments", 99999999999, 0]]',
        '[["payments", -1, 0]]',
        '[["\\ud800", 0, 0]]',
        '[[["payments"], 0, 0]]',
        '[["payments", true, 0]]',
    ],
)
def test_steps_that_no_plan_gave_are_refused(cluster: Cluster, steps: str) -> None:
    with pytest.raises(PageRefused):
        planned(groups.reset, cluster, group="billing", to="earliest", steps=steps)


def test_producers_are_shown_with_the_number_that_is_accepted_next(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.create_topic("payments", 2)
    deliver(idempotent_producer(broker), "payments", [b"0", b"1", b"2"])
    transactional = TransactionalProducer(ask, HOSTILE)
    transactional.claim()
    transactional.add("payments", partition=1)
    transactional.send("payments", "open", partition=1)
    answer = producers.of_topic(cluster, asked(topic="payments"))
    shown = {(one["transactional_id"], one["begun"] is None) for one in answer["producers"]}
    assert shown == {(None, True), (HOSTILE, False)}
    assert sum(one["next_sequence"] for one in answer["producers"]) == 4
    assert all(one["next_sequence"] == one["last_sequence"] + 1 for one in answer["producers"])


def test_a_group_is_deleted_by_who_types_its_name_unless_it_has_gone_on(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments")
    broker.seed("payments", "0", "1")
    commit(broker, "billing", "payments", p0=1)
    old = planned(groups.delete, cluster, group="billing")
    assert old["typed"] == "billing"
    commit(broker, "billing", "payments", p0=2)
    with pytest.raises(PageRefused, match="look again"):
        agreed(groups.delete, cluster, old, group="billing")
    now = planned(groups.delete, cluster, group="billing")
    now = planned(groups.delete, cluster, group="billing")
    with pytest.raises(PageRefused, match="type billing to confirm"):
        agreed(groups.delete, cluster, {**now, "typed": ""}, group="billing")
    assert agreed(groups.delete, cluster, group="billing") == "Group billing is deleted."
    assert groups.every_group(cluster, asked())["count"] == 0
    with pytest.raises(LogError, match="there is no group"):
        planned(groups.delete, cluster, group="billing")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_gets_a_member_after_its_plan_is_not_deleted(
    broker: FaultyBroker, cluster: Cluster, protocol: str
) -> None:
    broker.create_topic("payments")
    commit(broker, "billing", "payments", p0=0)
    plan = planned(groups.delete, cluster, group="billing")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "group.protocol": protocol}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.subscribe(["payments"])
    assert eventually(lambda: consumer.poll(0.1) is None and consumer.assignment() != [])
    for shown in (plan, None):
        with pytest.raises(PageRefused, match="has members: stop them first"):
            agreed(groups.delete, cluster, shown, group="billing")
    consumer.close()
    (place,) = groups.one_group(cluster, asked(group="billing"))["partitions"]
    assert place["committed"] == 0
