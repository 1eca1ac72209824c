"""What the pages of topics, records and transactions say of a cluster is what the cluster says."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from asking import Asker
from console_changes import agreed, planned
from eventually import eventually
from semel.client.cluster import Cluster
from semel.client.errors import OffsetOutOfRange, UnknownTopic
from semel.client.places import TopicPartition
from semel.testing.broker import FaultyBroker
from semel.ui.console import overview, pipelines, records, topics, transactions
from semel.ui.console.http import PageRefused, as_json
from semel.ui.console.query import Query
from semel.wire.batch import close_batch, read_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import PRODUCE
from transacting import TransactionalProducer, committed

HOSTILE = "<script>alert(1)</script>"


def asked(**values: object) -> Query:
    return Query({name.rstrip("_"): str(value) for name, value in values.items()})


def rows(cluster: Cluster, **values: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = records.some_records(cluster, asked(**values))["records"]
    return found


def test_what_a_page_opens_at_once_is_bounded_however_small_it_travels(
    broker: FaultyBroker, ask: Asker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of a few bytes that hold many: together they would take all the memory that there is."""
    monkeypatch.setattr(records, "SEARCHED_BYTES_MAX", 250_000)
    broker.create_topic("payments")
    for _ in range(5):
        ask.produce("payments", [Record(bytes(100_000))], codec="gzip")
    topic = cluster.topics(["payments"])["payments"]
    _, found, behind = records.read_from(cluster, topic, TopicPartition("payments", 0), 0, stable=5)
    assert ([offset for offset, _ in found], behind) == ([0, 1, 2], 3)
    answer = records.some_records(cluster, asked(topic="payments", from_="earliest", find="nothing"))
    assert (answer["records"], answer["next"]) == ([], 3)
    assert 300_000 <= answer["searched_bytes"] < 301_000


def test_topics_are_counted_and_sized(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments", 2)
    broker.seed("payments", "one", "two", partition=1)
    broker.create_topic("audits")
    answer = topics.every_topic(cluster, asked())
    assert (answer["count"], answer["page"], answer["pages"]) == (2, 1, 1)
    audits, payments = answer["topics"]
    assert audits == {"name": "audits", "partitions": 1, "led": 1, "offsets": 0, "bytes": 0}
    assert (payments["name"], payments["partitions"], payments["offsets"]) == ("payments", 2, 2)
    assert payments["bytes"] > 0


def test_many_topics_come_in_pages_and_are_found_by_a_part_of_their_names(
    broker: FaultyBroker, cluster: Cluster
) -> None:
    for number in range(topics.ROWS_MAX + 3):
        broker.create_topic(f"t{number:03}")
    last = topics.every_topic(cluster, asked(page=2))
    assert [one["name"] for one in last["topics"]] == ["t100", "t101", "t102"]
    assert (last["count"], last["pages"]) == (103, 2)
    assert topics.every_topic(cluster, asked(page=3))["topics"] == []
    assert [one["name"] for one in topics.every_topic(cluster, asked(find="T10"))["topics"]] == ["t100", "t101", "t102"]


def test_a_topic_shows_its_settings_and_how_much_an_open_transaction_holds_back(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.create_topic("payments", 1, {"retention.ms": "60000"})
    broker.seed("payments", "one")
    producer = TransactionalProducer(ask)
    producer.claim()
    producer.add("payments")
    producer.send("payments", "open")
    answer = topics.one_topic(cluster, asked(topic="payments"))
    assert answer["settings"] == [{"name": "retention.ms", "value": "60000"}]
    (partition,) = answer["partitions"]
    assert (partition["begin"], partition["stable"], partition["end"]) == (0, 1, 2)
    assert partition["leader"] == broker.bootstrap
    with pytest.raises(UnknownTopic):
        topics.one_topic(cluster, asked(topic="nowhere"))


def test_records_are_shown_with_their_claims_and_the_fate_of_their_transactions(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.seed("payments", Record(b"plain", b"key", [("name", b"value"), ("none", None)], 1_700_000_000_000))
    producer = TransactionalProducer(ask)
    producer.claim()
    for value, is_committed in (("kept", True), ("aborted", False)):
        producer.add("payments")
        producer.send("payments", value)
        producer.end(committed=is_committed)
    producer.add("payments")
    producer.send("payments", "open")
    shown = rows(cluster, topic="payments", from_="earliest")
    assert [(one["offset"], one["kind"], one["value"] and one["value"]["text"]) for one in shown] == [
        (0, "committed", "plain"),
        (1, "committed", "kept"),
        (2, "marker", None),
        (3, "aborted", "aborted"),
        (4, "marker", None),
        (5, "held", "open"),
    ]
    assert [one["ending"] for one in shown if one["kind"] == "marker"] == ["commit", "abort"]
    assert [one["value"]["text"] for one in shown if one["kind"] == "committed"] == committed(ask, "payments")
    assert shown[0]["key"] == {"bytes": 3, "text": "key", "next": None}
    assert shown[0]["time_ms"] == 1_700_000_000_000
    assert [one["name"] for one in shown[0]["headers"]] == ["name", "none"]
    assert (shown[0]["producer_id"], shown[1]["producer_id"]) == (None, producer.identity[0])
    assert [one["sequence"] for one in shown if one["kind"] != "marker"] == [None, 0, 1, 2]


def test_records_are_found_by_offset_time_and_text(broker: FaultyBroker, cluster: Cluster) -> None:
    many = [Record(f"value {n}".encode(), f"key {n}".encode(), (), 1_000_000 + n * 1000) for n in range(120)]
    broker.seed("payments", *many)

    def offsets(**values: object) -> list[int]:
        return [one["offset"] for one in rows(cluster, topic="payments", **values)]

    assert offsets() == list(range(70, 120))
    assert offsets(from_="earliest") == list(range(50))
    assert offsets(from_=115) == list(range(115, 120))
    assert offsets(from_=500) == []
    assert offsets(time="1970-01-01T00:18:38Z") == [118, 119]
    assert offsets(time="2100-01-01T00:00:00") == []
    # A search without a place looks through the latest records only, and says so.
    latest = records.some_records(cluster, asked(topic="payments", find="key 11"))
    assert ([one["offset"] for one in latest["records"]], latest["start"]) == ([*range(110, 120)], 70)
    assert offsets(from_="earliest", find="key 11") == [11, *range(110, 120)]
    page = records.some_records(cluster, asked(topic="payments", from_="earliest"))
    assert (page["next"], page["begin"], page["end"]) == (50, 0, 120)
    assert records.some_records(cluster, asked(topic="payments", from_=page["next"]))["next"] == 100


@pytest.mark.parametrize(
    "query", [{"from_": "x"}, {"from_": -1}, {"partition": 1}, {"time": "soon"}, {"time": "9" * 900}]
)
def test_a_place_that_makes_no_sense_is_refused(
    broker: FaultyBroker, cluster: Cluster, query: dict[str, object]
) -> None:
    broker.create_topic("payments")
    with pytest.raises(PageRefused):
        rows(cluster, topic="payments", **query)


def test_a_large_value_comes_in_pieces_that_make_the_whole(broker: FaultyBroker, cluster: Cluster) -> None:
    """Also where the cuts go through characters."""
    value = "añ€😀" * 30_000
    broker.seed("payments", "before", value)
    shown = rows(cluster, topic="payments")[1]["value"]
    assert shown["bytes"] == len(value.encode())
    assert value.startswith(shown["text"])
    pieces: list[str] = []
    at: int | None = 0
    while at is not None:
        answer = records.piece_of_record(cluster, asked(topic="payments", partition=0, offset=1, at=at))
        pieces.append(answer["piece"]["text"])
        at = answer["piece"]["next"]
    assert "".join(pieces) == value
    assert len(pieces) == -(-len(value.encode()) // records.PIECE_BYTES)
    with pytest.raises(OffsetOutOfRange):
        records.piece_of_record(cluster, asked(topic="payments", partition=0, offset=7))


def test_a_large_name_of_a_header_makes_no_large_page(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.seed("payments", Record(b"value", None, ((HOSTILE * 5_000, b"x" * 100_000),)))
    (shown,) = rows(cluster, topic="payments")
    (header,) = shown["headers"]
    assert (len(header["name"]), header["bytes"]) == (records.SHOWN_BYTES_MAX, 100_000)
    assert len(as_json(shown)) < 5_000


@pytest.mark.slow
def test_a_record_of_50_mb_is_listed_by_its_beginning_and_read_to_its_end(
    broker: FaultyBroker, cluster: Cluster
) -> None:
    size = 50_000_000
    broker.create_topic("payments", 1, {"max.message.bytes": "60000000"})
    broker.seed("payments", Record(value=b"a" * (size - 3) + b"end"))
    (shown,) = rows(cluster, topic="payments")
    assert (shown["value"]["bytes"], len(shown["value"]["text"]) < 10_000) == (size, True)
    last = records.piece_of_record(cluster, asked(topic="payments", partition=0, offset=0, at=size - 10))["piece"]
    assert (last["text"], last["next"]) == ("aaaaaaaend", None)


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 3000])
def test_what_is_no_text_is_shown_as_digits_to_the_last_byte(size: int) -> None:
    data = bytes((number * 7 + 128) % 256 for number in range(size))
    shown = ""
    at: int | None = 0
    while at is not None:
        piece = records.field(data, at)
        assert piece is not None
        shown += piece["hex"] if "hex" in piece else piece["text"].encode().hex()
        at = piece["next"]
    assert bytes.fromhex(shown) == data


def test_open_transactions_are_shown_oldest_first_with_what_each_holds_back(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    first, second, ended = (TransactionalProducer(ask, name) for name in ("stuck", HOSTILE, "ended"))
    broker.create_topic("payments", 2)
    for producer in (first, second, ended):
        producer.claim()
        producer.add("payments")
        producer.send("payments", "value")
    second.add("payments", partition=1)
    ended.end()
    answer = transactions.open_transactions(cluster, asked())
    stuck, other = answer["transactions"]
    assert (answer["count"], stuck["id"], other["id"]) == (2, "stuck", HOSTILE)
    assert (stuck["producer_id"], stuck["producer_epoch"]) == first.identity
    assert stuck["timeout_ms"] == 60_000
    assert (stuck["command"], other["command"]) == (
        "semel transactions abort stuck",
        f"semel transactions abort '{HOSTILE}'",
    )
    (place,) = stuck["partitions"]
    assert place["readers"] == []
    assert (place["begun"], place["stable"], place["end"], place["holds"]) == (0, 0, 4, 4)
    assert [(one["partition"], one["begun"], one["holds"]) for one in other["partitions"]] == [(0, 1, 0), (1, None, 0)]
    assert transactions.open_transactions(cluster, asked(find="STU"))["count"] == 1


def test_a_page_of_transactions_says_what_it_leaves_out(
    broker: FaultyBroker, ask: Asker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("payments")
    for name in ("a", "b"):
        writer = TransactionalProducer(ask, name)
        writer.claim()
        writer.add("payments")
        writer.send("payments", "open")
    for name in ("first", "second", "third"):
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "log_level": 0})
        reader.commit(offsets=[Place("payments", 0, 0)], asynchronous=False)
        reader.close()
    monkeypatch.setattr(transactions, "READERS_MAX", 1)
    monkeypatch.setattr(transactions, "GROUPS_ASKED_MAX", 2)
    answer = transactions.open_transactions(cluster, asked())
    assert answer["groups"] == {"count": 3, "asked": 2}
    (place,) = answer["transactions"][0]["partitions"]
    assert place["readers"] == [{"group": "first", "lag": 0, "lag_is_exact": True}]
    assert place["reader_count"] == 2
    monkeypatch.setattr(overview, "TRANSACTIONS_ASKED_MAX", 1)
    told = overview.now(cluster, asked())["transactions"]
    assert (told["count"], told["looked_at"]) == (2, 1)
    monkeypatch.setattr(pipelines, "GROUPS_ASKED_MAX", 1)
    assert pipelines.every_sink(cluster, asked())["groups"] == {"count": 3, "asked": 1}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_has_committed_nothing_yet_waits_for_an_open_transaction_as_well(
    broker: FaultyBroker, ask: Asker, cluster: Cluster, protocol: str
) -> None:
    broker.create_topic("payments")
    writer = TransactionalProducer(ask, "stuck")
    writer.claim()
    writer.add("payments")
    writer.send("payments", "open")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "log_level": 0}
    reader = Consumer({**settings, "group.protocol": protocol})
    reader.subscribe(["payments"])
    try:
        assert eventually(lambda: reader.poll(0.1) is None and reader.assignment() != [])
        (one,) = transactions.open_transactions(cluster, asked())["transactions"]
        assert one["partitions"][0]["readers"] == [{"group": "billing", "lag": None, "lag_is_exact": True}]
    finally:
        reader.close()


def test_a_stuck_transaction_is_ended_and_the_reader_goes_on(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    stuck = TransactionalProducer(ask, "stuck")
    broker.create_topic("payments")
    stuck.claim()
    stuck.add("payments")
    stuck.send("payments", "lost")
    broker.seed("payments", "waits")
    assert committed(ask, "payments") == []
    assert "is aborted" in agreed(transactions.abort, cluster, id="stuck")
    assert committed(ask, "payments") == ["waits"]
    with pytest.raises(PageRefused, match="nothing is open"):
        agreed(transactions.abort, cluster, id="stuck")


def test_a_transaction_of_another_producer_is_not_the_one_that_was_shown(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.create_topic("payments")
    for _ in range(2):
        shown = None if _ == 0 else planned(transactions.abort, cluster, id="stuck")
        other = TransactionalProducer(ask, "stuck")
        other.claim()
        other.add("payments")
        other.send("payments", "kept")
    with pytest.raises(PageRefused, match="look again"):
        agreed(transactions.abort, cluster, shown, id="stuck")
    assert other.end() == 0
    assert committed(ask, "payments") == ["kept"]


def test_an_aborted_record_names_the_marker_that_aborted_it(broker: FaultyBroker, ask: Asker, cluster: Cluster) -> None:
    """Also where the marker lies further on than the page shows, and another transaction was aborted before it."""
    broker.create_topic("payments")
    for name in ("first", "second"):
        writer = TransactionalProducer(ask, "billing")
        writer.claim()
        writer.add("payments")
        writer.send("payments", name)
        writer.end(committed=False)
    first, marker, second, other = rows(cluster, topic="payments", from_="earliest")
    assert (first["ended_by"]["offset"], second["ended_by"]["offset"]) == (marker["offset"], other["offset"])
    assert first["ended_by"]["is_later"] == (first["ended_by"]["epoch"] != first["producer_epoch"])
    (alone,) = rows(cluster, topic="payments", from_="earliest", find="second")
    assert alone["ended_by"]["offset"] == other["offset"]
    assert (marker["ended_by"], marker["ending"]) == (None, "abort")


def test_a_text_is_looked_for_where_it_was_asked_for(broker: FaultyBroker, cluster: Cluster) -> None:
    broker.create_topic("payments")
    broker.seed("payments", Record(b"apple", b"key"), Record(b"pear", b"apple"))
    found = {
        part: [one["offset"] for one in rows(cluster, topic="payments", from_="earliest", find="apple", in_=part)]
        for part in records.PARTS
    }
    assert found == {"both": [0, 1], "key": [1], "value": [0]}
    with pytest.raises(PageRefused, match="in is one of"):
        rows(cluster, topic="payments", in_="headers")


def test_a_page_names_a_batch_that_cannot_be_read_and_shows_what_is_around_it(
    broker: FaultyBroker, ask: Asker, cluster: Cluster
) -> None:
    broker.create_topic("half")
    bad = close_batch(read_header(encode_batch([Record(b"v")] * 3, codec="gzip")), b"\x1f\x8bthis is no gzip")
    for batch in (encode_batch([Record(b"a")]), bad, encode_batch([Record(b"b")])):
        data = [{"name": "half", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code == 0
    page = records.some_records(cluster, asked(topic="half", from_="earliest"))
    assert [one["offset"] for one in page["records"]] == [0, 4]
    assert [(one["first"], one["last"]) for one in page["unreadable"]] == [(1, 3)]
    assert page["next"] is None
