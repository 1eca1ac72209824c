"""`semel top` shows what changes, in the order in which it matters, and goes on when a broker is away."""

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from semel.testing.broker import FaultyBroker
from semel.testing.served import ServedBroker
from semel.ui.cli.top import Growth, Sight, growing, lagging
from semel_command import semel, semel_failure, semel_lines


def seen(at: float, **topics: tuple[int, int, int]) -> Sight:
    return Sight(at, {name: Growth(*growth) for name, growth in topics.items()}, {"groups": None})


def test_the_topic_that_grows_fastest_comes_first_and_one_that_was_recreated_grows_from_its_beginning() -> None:
    before = seen(10.0, idle=(1, 900, 0), orders=(4, 100, 0), again=(1, 500, 0))
    now = seen(12.0, idle=(1, 900, 0), orders=(4, 300, 7), again=(1, 60, 0), new=(2, 20, 0))
    assert growing(before, now, 9)[1:] == [
        ("orders", "4", "100", "300", "7"),
        ("again", "1", "30", "60", "0"),
        ("new", "2", "10", "20", "0"),
        ("idle", "1", "0", "900", "0"),
    ]
    assert [row[0] for row in growing(before, now, 1)[1:]] == ["orders", "and 3 more"]
    assert lagging(now) == [("this login may not see the groups",)]


def test_lag_and_the_oldest_transaction_are_shown(semel_broker: FaultyBroker, bootstrap: str) -> None:
    semel_broker.seed("orders", *map(str, range(10)))
    group = Consumer({"bootstrap.servers": semel_broker.bootstrap, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    open_one = Producer({"bootstrap.servers": semel_broker.bootstrap, "transactional.id": "t"})
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.produce("held", b"a record")
    open_one.flush()
    lines = [line.split() for line in semel_lines("top", "--times", "1", "--every", "0.05", bootstrap)]
    assert ["orders", "1", "0", "10", "0"] in lines
    assert ["held", "1", "0", "1", "1"] in lines
    assert ["GROUP", "(1", "of", "1", "lag)", "STATE", "LAG"] in lines
    assert ["billing", "Empty", "6"] in lines
    assert ["TRANSACTION", "(1", "open)", "PARTITIONS", "OPEN", "FOR"] in lines
    assert lines[-1][:4] == ["t", "(the", "oldest)", "1"]


def test_the_brokers_of_a_store_are_shown(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with ServedBroker(tmp_path / "disk", f"--store={url}") as broker:
        words = ("top", "--store", url, "--bootstrap", broker.bootstrap, "--times", "1", "--every", "0.05")
        lines = semel_lines(*words)
        assert lines[1:3] == [f"active  {broker.bootstrap}, epoch 1", "standby  none"]
    gone = semel(*words)
    assert gone.returncode == 1
    [reason, active, _] = gone.stdout.splitlines()
    assert reason.startswith("no broker answers: ")
    assert active.startswith("active  nobody: ")


def test_a_broker_that_is_away_is_a_line() -> None:
    assert "127.0.0.1:1" in semel_failure("top", "--bootstrap", "127.0.0.1:1", "--times", "1")
