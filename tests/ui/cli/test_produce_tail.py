"""What `semel produce` and `semel tail` promise: every line once, whatever breaks, and its claim for all to see."""

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer

from asking import Asker
from forked import SECONDS_MAX
from semel.testing.broker import FaultyBroker
from semel.ui.cli.produce import BATCH_BYTES, partition_of
from semel.wire.batch import close_batch, read_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import PRODUCE
from semel_command import semel, semel_failure, semel_lines, started


def test_lines_become_records_in_their_order(semel_broker: FaultyBroker, bootstrap: str) -> None:
    said = semel_lines("produce", "lines", bootstrap, stdin="first\n\nlast without an end")
    assert [record.value for record in semel_broker.log("lines")] == [b"first", b"", b"last without an end"]
    assert [record.sequence for record in semel_broker.log("lines")] == [0, 1, 2]
    assert said[0].startswith("3 records acknowledged in ")
    assert said[1] == "  lines-0: 3 up to offset 2, from 0"


def test_a_record_is_shown_with_the_claim_under_which_it_was_written(
    semel_broker: FaultyBroker, bootstrap: str
) -> None:
    semel_lines("produce", "claims", "--key", "k", bootstrap, stdin="a\nb\n")
    producer_id = semel_broker.log("claims")[0].producer_id
    shown = [line.split() for line in semel_lines("tail", "claims", bootstrap)]
    assert [[place, *rest] for place, _, *rest in shown] == [
        ["0@0", f"producer={producer_id}/0", "sequence=0", "key=k", "value=a"],
        ["0@1", f"producer={producer_id}/0", "sequence=1", "key=k", "value=b"],
    ]
    records = [json.loads(line) for line in semel_lines("tail", "claims", "--format", "json", bootstrap)]
    assert [(r["offset"], r["producer_id"], r["producer_epoch"], r["sequence"], r["value"]) for r in records] == [
        (0, producer_id, 0, 0, "a"),
        (1, producer_id, 0, 1, "b"),
    ]


def test_a_batch_whose_acknowledgement_was_lost_is_there_once(semel_broker: FaultyBroker, bootstrap: str) -> None:
    semel_broker.drop_acks(2)
    done = semel("produce", "lost", bootstrap, stdin="100 EUR\n")
    assert done.returncode == 0
    assert "1 sent again" in done.stdout
    assert "sending the same again" in done.stderr
    assert [record.value for record in semel_broker.log("lost")] == [b"100 EUR"]


def test_both_survive_the_death_of_the_broker(semel_broker: FaultyBroker, bootstrap: str) -> None:
    """The readers of lines are not told of it, and each line comes once."""
    semel_lines("topics", "create", "burst", bootstrap)
    reader = started("tail", "burst", "--follow", bootstrap)
    writer = started("produce", "burst", bootstrap)
    try:
        for number in range(3):
            assert writer.stdin is not None
            writer.stdin.write(f"line {number}\n")
            writer.stdin.flush()
            assert reader.stdout is not None
            assert reader.stdout.readline().endswith(f"sequence={number} value=line {number}\n")
            semel_broker.kill()
            semel_broker.restart()
        said, _ = writer.communicate(timeout=SECONDS_MAX)
        assert writer.returncode == 0
        assert said.startswith("3 records acknowledged")
        reader.send_signal(signal.SIGINT)
        rest, complaints = reader.communicate(timeout=SECONDS_MAX)
        assert (reader.returncode, rest) == (0, "")
        assert "Traceback" not in complaints
    finally:
        for process in (reader, writer):
            process.kill()
            process.wait()


def test_a_key_goes_to_the_partition_that_other_clients_choose(semel_broker: FaultyBroker, bootstrap: str) -> None:
    semel_lines("topics", "create", "keys", "--partitions", "7", bootstrap)
    producer = Producer({"bootstrap.servers": semel_broker.bootstrap, "partitioner": "murmur2", "linger.ms": 5})
    for length in range(40):
        producer.produce("keys", key=bytes(range(200, 200 + length)), value=b"theirs")
    assert producer.flush(30) == 0
    stored = semel_broker.log("keys")
    assert len(stored) == 40
    # Without a key a producer chooses for itself, and to that one a key without bytes is none.
    assert [r for r in stored if r.key and partition_of(r.key, 7) != r.partition] == []
    semel_lines("produce", "keys", "--key", "alice", bootstrap, stdin="ours\n")
    (ours,) = (record for record in semel_broker.log("keys") if record.value == b"ours")
    assert ours.partition == partition_of(b"alice", 7)


def test_lines_without_a_key_take_the_partitions_in_turn(semel_broker: FaultyBroker, bootstrap: str) -> None:
    semel_lines("topics", "create", "turns", "--partitions", "2", bootstrap)
    lines = [f"{number:0100}" for number in range(10_000)]
    semel_lines("produce", "turns", bootstrap, stdin="\n".join(lines))
    stored = semel_broker.log("turns")
    assert sorted(record.value or b"" for record in stored) == sorted(line.encode() for line in lines)
    for partition in range(2):
        sequences = [record.sequence for record in stored if record.partition == partition]
        assert sequences == list(range(len(sequences)))
        assert sequences


def test_tail_begins_and_ends_where_it_is_told(bootstrap: str) -> None:
    semel_lines("produce", "ends", bootstrap, stdin="a\nb\nc\nd\n")

    def values(*words: str) -> list[str]:
        return [line.rpartition("value=")[2] for line in semel_lines("tail", "ends", *words, bootstrap)]

    assert values() == ["a", "b", "c", "d"]
    assert values("--from", "2") == ["c", "d"]
    assert values("--from", "1", "-n", "2") == ["b", "c"]
    assert values("--from", "latest") == []
    assert values("--follow", "-n", "2") == ["a", "b"]
    assert values("-n", "0") == []
    assert values("-n", "2") == ["c", "d"]
    assert values("-n", "9") == ["a", "b", "c", "d"]
    assert "it goes from 0 to 4" in semel_failure("tail", "ends", "--from", "5", bootstrap)
    assert "has no partition 3" in semel_failure("tail", "ends", "--partition", "3", bootstrap)
    assert semel_failure("tail", "nowhere", bootstrap) == "there is no topic 'nowhere'"


def test_the_last_records_are_those_that_were_written_last_in_whatever_partition(
    semel_broker: FaultyBroker, bootstrap: str
) -> None:
    semel_broker.create_topic("last", partitions=3)
    for number, partition in enumerate((0, 1, 1, 0, 2)):
        semel_broker.seed("last", Record(f"v{number}".encode(), timestamp_ms=1_000 + number), partition=partition)
    lines = semel_lines("tail", "last", "-n", "3", bootstrap)
    assert [line.rpartition("value=")[2] for line in lines] == ["v2", "v3", "v4"]


def test_the_last_record_is_found_before_the_ends_of_many_transactions(
    semel_broker: FaultyBroker, bootstrap: str
) -> None:
    """Each end takes an offset, and so do the records of those that were aborted."""
    semel_broker.seed("ended", "kept")
    producer = Producer({"bootstrap.servers": semel_broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce("ended", f"dropped {number}")
        producer.flush()
        producer.abort_transaction()
    [line] = semel_lines("tail", "ended", "-n", "1", bootstrap)
    assert line.endswith("value=kept")


def test_compressed_and_unprintable_records_are_shown_safely(semel_broker: FaultyBroker, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": semel_broker.bootstrap, "compression.type": "zstd", "linger.ms": 5})
    producer.produce("odd", key=b"\xff", value=b"clear \x1b[2J\n" + b"x" * 100, headers=[("trace", b"\x00")])
    producer.produce("odd", key=None, value=None)
    assert producer.flush(30) == 0
    first, second = semel_lines("tail", "odd", bootstrap)
    assert "producer=none key=\\xff header.trace=\\x00 value=clear \\x1b[2J\\nxxx" in first
    assert second.endswith("producer=none value=null")
    parsed = json.loads(semel_lines("tail", "odd", "--from", "0", "-n", "1", "--format", "json", bootstrap)[0])
    assert parsed["key_base64"] == "/w=="


@pytest.mark.parametrize(
    ("line", "key", "limit"), [("1", None, 1_048_588), ("x", "k" * 1_000, 1_048_588), ("y" * 100, None, 1_000)]
)
def test_lines_are_written_in_as_many_batches_as_the_topic_accepts(
    semel_broker: FaultyBroker, bootstrap: str, tmp_path: Path, line: str, key: str | None, limit: int
) -> None:
    """Short lines are more bytes as records than in their file, and a key comes with each of them."""
    semel_lines("topics", "create", "many", "--config", f"max.message.bytes={limit}", bootstrap)
    file = tmp_path / "lines"
    count = BATCH_BYTES // (len(line) + 1) // (1 if limit > 1_000 else 50)
    file.write_text(f"{line}\n" * count)
    keyed = [] if key is None else ["--key", key]
    semel_lines("produce", "many", "--file", str(file), *keyed, bootstrap)
    records = semel_broker.log("many")
    assert [record.sequence for record in records] == list(range(count))
    assert {record.value for record in records} == {line.encode()}


def test_lines_that_cannot_be_written_are_one_line(bootstrap: str) -> None:
    semel_lines("topics", "create", "small", "--config", "max.message.bytes=100", bootstrap)
    failure = semel_failure("produce", "small", bootstrap, stdin="x" * 200)
    assert "MESSAGE_TOO_LARGE" in failure
    assert failure.endswith("0 records before it are acknowledged")
    assert "No such file" in semel_failure("produce", "small", "--file", "/nowhere/lines", bootstrap)
    assert "has no partition 1" in semel_failure("produce", "small", "--partition", "1", bootstrap)


def test_tail_stops_at_a_batch_that_cannot_be_read_and_goes_on_where_that_is_wanted(
    semel_broker: FaultyBroker, bootstrap: str
) -> None:
    semel_lines("produce", "half", bootstrap, stdin="a\n")
    bad = close_batch(read_header(encode_batch([Record(b"v")] * 3, codec="gzip")), b"\x1f\x8bthis is no gzip")
    with Asker(semel_broker.bootstrap) as ask:
        data = [{"name": "half", "partition_data": [{"index": 0, "records": bytes(bad)}]}]
        answer = ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code == 0
    semel_lines("produce", "half", bootstrap, stdin="b\n")
    where = "semel: partition half-0: the batch at offsets 1 to 3 cannot be read: "
    stopped = semel("tail", "half", bootstrap)
    assert stopped.returncode == 1
    assert stopped.stderr.startswith(where)
    assert stopped.stderr.endswith("; --on-bad-batch=quarantine goes on after it\n")
    ended = semel("tail", "half", "--on-bad-batch=quarantine", bootstrap)
    assert [line.rpartition("value=")[2] for line in ended.stdout.splitlines()] == ["a", "b"]
    assert ended.stderr.startswith(where)
    assert ended.stderr.count("\n") == 1
