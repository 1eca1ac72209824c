"""What `semel groups` promises: how far each group has come is shown, and nothing moves unless somebody means it."""

import shlex
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from asking import Asker
from semel.wire.versions import JOIN_GROUP, SYNC_GROUP
from semel_command import semel_failure, semel_lines
from sharing import ACCEPT, Sharer, sharer
from transacting import TransactionalProducer


def records(bootstrap: str, topic: str, *, partitions: int = 1) -> None:
    """A topic with five records in its first partition."""
    semel_lines("topics", "create", topic, "--partitions", str(partitions), bootstrap)
    semel_lines("produce", topic, "--partition", "0", bootstrap, stdin="a\nb\nc\nd\ne\n")


def reset(bootstrap: str, group: str, *words: str) -> list[str]:
    return semel_lines("groups", "reset", group, *words, bootstrap)


def table(lines: list[str]) -> list[list[str]]:
    """The rows below the headings."""
    headings = next(number for number, line in enumerate(lines) if line.startswith("TOPIC"))
    return [line.split() for line in lines[headings + 1 :]]


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of a group that has been given the topic's partitions."""
    settings = {"group.protocol": protocol} if protocol == "consumer" else {"session.timeout.ms": 6000}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap.removeprefix("--bootstrap="),
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_a_group_is_set_only_by_those_who_say_so(bootstrap: str) -> None:
    records(bootstrap, "asked", partitions=2)
    shown = reset(bootstrap, "asking", "--topic", "asked", "--to", "3")
    assert shown[-1] == "nothing was changed; pass --execute to do it"
    assert table(shown)[:2] == [["asked", "0", "-", "3"], ["asked", "1", "-", "0"]]
    assert semel_failure("groups", "describe", "asking", bootstrap) == (
        "there is no group 'asking': semel groups list shows all"
    )
    done = reset(bootstrap, "asking", "--topic", "asked", "--to", "3", "--execute")
    assert done[:-1] == shown[:-1]
    assert done[-1] == "group asking is set to these offsets"
    described = semel_lines("groups", "describe", "asking", bootstrap)
    assert described[0] == "group asking  type classic  state Empty"
    assert table(described) == [["asked", "0", "3", "5", "2", "0", "-"], ["asked", "1", "0", "0", "0", "0", "-"]]


def test_a_reset_says_what_it_skips_that_an_open_transaction_holds_back(bootstrap: str) -> None:
    records(bootstrap, "held")
    with Asker(bootstrap.removeprefix("--bootstrap=")) as asker:
        producer = TransactionalProducer(asker, "held")
        producer.claim()
        producer.add("held")
        producer.send("held", "open")
        told = "held back by open transactions and skipped in held-0: 1 from offset 5 on"
        assert told in reset(bootstrap, "skipping", "--topic", "held", "--to", "latest")
        assert told not in reset(bootstrap, "skipping", "--topic", "held", "--to", "5")
        producer.end()


def test_a_group_is_set_to_any_place_there_is(bootstrap: str) -> None:
    records(bootstrap, "places", partitions=2)
    first = ("--topic", "places:0")

    def target(where: str) -> list[list[str]]:
        return [row for row in table(reset(bootstrap, "going", *first, "--to", where)) if row[0] == "places"]

    assert target("earliest") == [["places", "0", "-", "0"]]
    assert target("latest") == [["places", "0", "-", "5"]]
    assert target("99") == [["places", "0", "-", "5"]]
    assert target("9" * 100) == [["places", "0", "-", "5"]]
    assert target("2000-01-01T00:00:00Z") == [["places", "0", "-", "0"]]
    assert target("2000-01-01") == [["places", "0", "-", "0"]]
    assert target("2100-01-01T00:00:00+02:00") == [["places", "0", "-", "5"]]
    for nowhere in ("soon", "9" * 5_000):
        assert "neither earliest, latest" in semel_failure(
            "groups", "reset", "going", *first, "--to", nowhere, bootstrap
        )
    wrong = ("--topic", "places:x", "--to", "1")
    assert "names no partitions" in semel_failure("groups", "reset", "going", *wrong, bootstrap)
    missing = ("--topic", "places:7", "--to", "1")
    assert "has no partition 7" in semel_failure("groups", "reset", "going", *missing, bootstrap)


def test_each_partition_is_set_to_its_own_offset_and_the_line_that_puts_them_back_can_be_pasted(bootstrap: str) -> None:
    records(bootstrap, "own", partitions=2)
    records(bootstrap, "others")
    for where in ("own:0", "others:0"):
        reset(bootstrap, "pasting", "--topic", where, "--to", "4", "--execute")
    offsets = ("--to-offsets", "own:0=2,1=7", "--to-offsets", "others:0=99")
    shown = reset(bootstrap, "pasting", *offsets)
    assert table(shown)[:3] == [["others", "0", "4", "5"], ["own", "0", "4", "2"], ["own", "1", "-", "0"]]
    assert shown[-1] == "nothing was changed; pass --execute to do it"
    *_, back = reset(bootstrap, "pasting", *offsets, "--execute")
    words = shlex.split(back.removeprefix("to put them back: "))
    assert words[:4] == ["semel", "groups", "reset", "pasting"]
    semel_lines(*words[1:])
    assert [row[2] for row in table(semel_lines("groups", "describe", "pasting", bootstrap))] == ["4", "4", "0"]
    for wrong, said in (
        (("--to-offsets", "own:0"), "names no offsets"),
        (("--to-offsets", "own:7=1"), "has no partition 7"),
        (("--to-offsets", "own:0=1,0=2"), "is named twice"),
        (("--to-offsets", "own:0=1", "--topic", "own"), "leave out --topic"),
    ):
        assert said in semel_failure("groups", "reset", "pasting", *wrong, bootstrap)


def test_a_group_whose_name_was_mistyped_is_suggested(bootstrap: str) -> None:
    records(bootstrap, "near")
    reset(bootstrap, "billing", "--topic", "near", "--to", "4", "--execute")
    for action in ("describe", "delete"):
        assert "there is no group 'biling'; was 'billing' meant?" in semel_failure(
            "groups", action, "biling", bootstrap
        )


def test_without_a_topic_all_that_the_group_knows_is_set(bootstrap: str) -> None:
    records(bootstrap, "known", partitions=2)
    assert "name the topics" in semel_failure("groups", "reset", "knowing", "--to", "earliest", bootstrap)
    reset(bootstrap, "knowing", "--topic", "known:0", "--to", "4", "--execute")
    assert table(reset(bootstrap, "knowing", "--to", "earliest"))[0] == ["known", "0", "4", "0"]
    reset(bootstrap, "knowing", "--to", "earliest", "--execute")
    assert table(semel_lines("groups", "describe", "knowing", bootstrap)) == [["known", "0", "0", "5", "5", "0", "-"]]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_shown_and_left_alone(protocol: str, bootstrap: str) -> None:
    topic = group = f"read-{protocol}"
    records(bootstrap, topic)
    with member(bootstrap, group, topic, protocol):
        title, who, *rest = semel_lines("groups", "describe", group, bootstrap)
        assert title == f"group {group}  type {protocol}  state Stable"
        assert "client reader" in who
        member_id = who.split()[1]
        assert table(rest) == [[topic, "0", "2", "5", "3", "0", member_id]]
        assert [group, protocol, "Stable"] in [line.split() for line in semel_lines("groups", "list", bootstrap)]
        refused = semel_failure("groups", "reset", group, "--to", "latest", "--execute", bootstrap)
        assert "has members" in refused
        assert "has members" in semel_failure("groups", "delete", group, "--yes", bootstrap)
    assert table(semel_lines("groups", "describe", group, bootstrap)) == [[topic, "0", "2", "5", "3", "0", "-"]]


def test_a_member_may_still_have_partitions_that_are_gone(bootstrap: str) -> None:
    """Until it hears that its topic was deleted, or recreated with fewer partitions."""
    records(bootstrap, "recreated")
    with Asker(bootstrap.removeprefix("--bootstrap=")) as asker:
        who = {"group_id": "leftovers", "group_instance_id": None, "protocol_type": "consumer"}
        wish = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "member_id": "", "reason": None}
        # This version asks for no second request with the id.
        joined = asker(JOIN_GROUP, 3, **who, **wish, protocols=[{"name": "range", "metadata": b""}])
        share = assignment({"deleted": [0], "recreated": [0, 1]})
        synced = asker(
            SYNC_GROUP,
            5,
            **who,
            member_id=joined.member_id,
            generation_id=joined.generation_id,
            protocol_name="range",
            assignments=[{"member_id": joined.member_id, "assignment": share}],
        )
        assert (joined.error_code, synced.error_code) == (0, 0)
        assert table(semel_lines("groups", "describe", "leftovers", bootstrap)) == [
            ["deleted", "0", "-", "-", "-", "-", joined.member_id],
            ["recreated", "0", "-", "5", "-", "0", joined.member_id],
            ["recreated", "1", "-", "-", "-", "-", joined.member_id],
        ]


def assignment(topics: dict[str, list[int]]) -> bytes:
    """As a leader of the classic protocol shares partitions out."""
    content = struct.pack(">hi", 0, len(topics))
    for name, partitions in topics.items():
        content += struct.pack(
            f">h{len(name)}si{len(partitions)}i", len(name), name.encode(), len(partitions), *partitions
        )
    return content + struct.pack(">i", -1)


def test_a_group_is_deleted_only_by_those_who_are_sure(bootstrap: str) -> None:
    records(bootstrap, "kept")
    reset(bootstrap, "keeping", "--topic", "kept", "--to", "1", "--execute")
    assert "--yes" in semel_failure("groups", "delete", "keeping", bootstrap)
    assert semel_lines("groups", "delete", "keeping", "--yes", bootstrap) == ["deleted keeping"]
    assert semel_failure("groups", "delete", "keeping", "--yes", bootstrap) == (
        "there is no group 'keeping': semel groups list shows all"
    )


def test_a_group_that_lost_its_offsets_says_so(bootstrap: str) -> None:
    records(bootstrap, "lost")
    reset(bootstrap, "losing", "--topic", "lost", "--to", "1", "--execute")
    semel_lines("topics", "delete", "lost", "--yes", bootstrap)
    assert semel_lines("groups", "describe", "losing", bootstrap)[-1] == "no offsets"


@pytest.mark.parametrize("is_committed", [True, False], ids=["after a commit", "after an abort"])
def test_a_group_that_has_read_everything_has_no_lag(bootstrap: str, is_committed: bool) -> None:
    """The marker of a transaction takes an offset, and so do the records of one that was aborted."""
    name = f"read-to-the-end-{is_committed}"
    records(bootstrap, name)
    with Asker(bootstrap.removeprefix("--bootstrap=")) as asker:
        producer = TransactionalProducer(asker, name)
        producer.claim()
        producer.add(name)
        producer.send(name, "last")
        producer.end(committed=is_committed)
    reset(bootstrap, name, "--topic", name, "--to", "6" if is_committed else "5", "--execute")
    (row,) = table(semel_lines("groups", "describe", name, bootstrap))
    assert row == [name, "0", "6" if is_committed else "5", "7", "0", "0", "-"]


def test_what_an_open_transaction_holds_back_is_no_lag_and_is_shown_beside_it(bootstrap: str) -> None:
    records(bootstrap, "held-back")
    with Asker(bootstrap.removeprefix("--bootstrap=")) as asker:
        producer = TransactionalProducer(asker, "holds-back")
        producer.claim()
        producer.add("held-back")
        producer.send("held-back", "open")
        reset(bootstrap, "waiting", "--topic", "held-back", "--to", "3", "--execute")
        *lines, last = semel_lines("groups", "describe", "waiting", bootstrap)
        assert table(lines) == [["held-back", "0", "3", "6", "2", "1", "-"]]
        assert "semel transactions list --state Ongoing" in last
        producer.end()


def test_offsets_that_wait_for_an_open_transaction_are_told_of_although_none_was_ever_committed(bootstrap: str) -> None:
    """The first transaction of a copy that is stuck: its group has members, and no offsets."""
    records(bootstrap, "copied")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap.removeprefix("--bootstrap="),
            "group.id": "copying",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap.removeprefix("--bootstrap="), "transactional.id": "copying", "log_level": 0}
    )
    try:
        consumer.subscribe(["copied"])
        assert consumer.poll(30) is not None
        producer.init_transactions(30)
        producer.begin_transaction()
        offsets = [TopicPartition("copied", 0, 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        *lines, last = semel_lines("groups", "describe", "copying", bootstrap)
        assert table(lines)[0][:6] == ["copied", "0", "-", "5", "-", "0"]
        assert last == "an open transaction will commit offsets of this group in copied-0; clients wait for its end"
        producer.abort_transaction(30)
        assert table(semel_lines("groups", "describe", "copying", bootstrap))[0][:3] == ["copied", "0", "-"]
    finally:
        consumer.close()


def test_a_share_group_is_shown_with_its_starts_and_its_members(bootstrap: str) -> None:
    with Asker(bootstrap.removeprefix("--bootstrap=")) as ask:
        ada = sharer(ask, records=5)
        ada.got(max_records=3)
        ada.acknowledge((0, 1, [ACCEPT]))
        shown = semel_lines("groups", "describe", "workers", bootstrap)
    assert shown[0] == "group workers  type share  state Stable"
    assert table(shown) == [["jobs", "0", "2", "3", "ada"]]
    assert "has members" in semel_failure("groups", "reset", "workers", "--to", "earliest", "--execute", bootstrap)
    with Asker(bootstrap.removeprefix("--bootstrap=")) as ask:
        Sharer(ask, ada.topic_id).beat(-1)
    assert table(reset(bootstrap, "workers", "--to", "4", "--execute"))[0] == ["jobs", "0", "2", "4"]
    assert table(semel_lines("groups", "describe", "workers", bootstrap)) == [["jobs", "0", "4", "1", "-"]]
