"""`semel acls for` names the rights that a piece of semel needs: it works twice with them, and is denied nothing.
Without one of them it names that one at its first start.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import Engine

from console_changes import agreed
from logged_in import MECHANISM, BrokerOfUsers
from secured import PASSWORD, login
from semel import inbox, outbox
from semel.client import from_options
from semel.client.cluster import Cluster
from semel.client.errors import LogError
from semel.database import engine_of
from semel.inbox import Inbox, LoopFailed
from semel.log.broker.security_log import SecurityLog
from semel.outbox import Relay, RelayFailed
from semel.publish import Publisher, PublishError, Receipt, Record
from semel.spark.data_source import SemelDataSource
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneFailed, LaneWriter
from semel.spark.lanes.protocol import LaneClaim
from semel.ui.cli.rights import PIECES, rights_of
from semel.ui.console import access, groups, topics, transactions
from semel.ui.console.query import Query
from semel.ui.console.sources import CLUSTER, QUESTIONS
from semel_command import semel, semel_failure, semel_lines

USER = "app"
Work = Callable[[BrokerOfUsers, Engine, int], None]
# In small letters: librdkafka does not know the others in a language in which an i is no small I.
SETTINGS = login(MECHANISM.sasl_name, USER, PASSWORD, "sasl_plaintext")


@pytest.fixture
def denied(tmp_path: Path) -> Path:
    return tmp_path / "security.log"


@pytest.fixture
def broker(denied: Path) -> Iterator[BrokerOfUsers]:
    with BrokerOfUsers(security_log=SecurityLog(denied)) as broker:
        broker.add_user(USER, PASSWORD)
        broker.create_topic("orders")
        broker.seed("orders", '{"id": 17}')
        yield broker


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = engine_of(f"sqlite:///{tmp_path}/shop.db")
    inbox.metadata.create_all(made)
    outbox.metadata.create_all(made)
    yield made
    made.dispose()


def publish(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    with Publisher(broker.bootstrap, "shop", client=SETTINGS) as publisher:
        assert publisher.publish(number, Record("orders", value=b"an order")) is Receipt.ACCEPTED


def relay(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    with engine.begin() as connection:
        outbox.add(connection, "orders", value=b"an order")
    assert Relay(engine, {"bootstrap.servers": broker.bootstrap, **SETTINGS}, name="shop").drain() == 1


def handle(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    inbox = Inbox(engine, consumer="billing", identity=lambda message: str(message.offset))
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    broker.seed("orders", "another")
    inbox.run(lambda *_: inbox.stop(), {**settings, **SETTINGS}, ["orders"])
    assert inbox.counts.first_time == 1


def audit(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    config = Path(str(engine.url.database)).with_name("client.properties")
    config.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    address = f"semel://{broker.bootstrap}/orders?id=value.$.id"
    done = semel("audit", "--source", address, "--sink", address, "--command-config", str(config))
    assert done.stdout.endswith("clean: every record is stored exactly once\n"), done.stderr


def read_in_spark(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    """What Spark asks of a source for one batch."""
    source = SemelDataSource({**of_spark(broker), "subscribe": "orders", "startingoffsets": "earliest"})
    reader = source.reader(source.schema())
    assert [batch.num_rows for piece in reader.partitions() for batch in reader.read(piece)] == [1]


def write_in_spark(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    """One batch of a sink, which gets one lane more each time."""
    client = from_options(of_spark(broker))
    topic = progress.prepare(client, "semel-progress-shop", number + 1, may_grow=True)
    rows = pa.record_batch({"value": pa.array([b"an order"], pa.binary())})
    claim = LaneClaim("shop", number, number + 1, f"query {number}", 0)
    assert not LaneWriter(client, topic, "orders", 60_000).write(claim, [rows]).was_duplicate


def of_spark(broker: BrokerOfUsers) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in {"bootstrap.servers": broker.bootstrap, **SETTINGS}.items()}


def look_at_pages(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.open, "group.id": "billing", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    with Cluster(from_options(of_spark(broker))) as cluster:
        view = SimpleNamespace(cluster=cluster, door=None)
        for page, question in QUESTIONS.items():
            if question.source == CLUSTER and page != "piece":
                assert question.ask(view, Query({"topic": "orders", "group": "billing", "from": "earliest"}))


def change_from_pages(broker: BrokerOfUsers, engine: Engine, number: int) -> None:
    """Each change of a page, once."""
    consumer = Consumer({"bootstrap.servers": broker.open, "group.id": "billing", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    producer = Producer({"bootstrap.servers": broker.open, "transactional.id": "stuck", "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"an order")
    assert producer.flush(60) == 0
    rule = {"principal": "User:anna", "operations": "read", "resource": "topic:orders"}
    with Cluster(from_options(of_spark(broker))) as cluster:
        agreed(topics.create, cluster, topic="new")
        agreed(topics.grow, cluster, topic="new", partitions=2)
        agreed(topics.configure, cluster, topic="new", setting="retention.ms", value=60000)
        agreed(topics.delete, cluster, topic="new")
        agreed(groups.reset, cluster, group="billing", to="earliest")
        agreed(groups.delete, cluster, group="billing")
        agreed(transactions.abort, cluster, id="stuck")
        agreed(access.add_rule, cluster, **rule)
        agreed(access.remove_rule, cluster, **rule)


TOPIC, NAME = ("--topic", "orders"), ("--name", "shop")
WORK: dict[str, tuple[Work, tuple[str, ...]]] = {
    "publisher": (publish, (*TOPIC, *NAME)),
    "outbox": (relay, (*TOPIC, *NAME)),
    "inbox": (handle, (*TOPIC, "--group", "billing")),
    "audit": (audit, TOPIC),
    "source": (read_in_spark, TOPIC),
    "sink": (write_in_spark, (*TOPIC, *NAME)),
    "console": (look_at_pages, ()),
    "console-changes": (change_from_pages, ()),
}


@pytest.mark.parametrize("piece", WORK)
def test_a_piece_works_twice_with_these_rights_and_misses_none(
    broker: BrokerOfUsers, engine: Engine, denied: Path, piece: str
) -> None:
    work, names = WORK[piece]
    added = semel_lines("acls", "for", piece, f"User:{USER}", *names, "--add", "--bootstrap", broker.open)
    assert all(line.startswith(f"added: allow User:{USER} ") for line in added)
    for number in range(2):
        work(broker, engine, number)
    assert [
        event for event in map(json.loads, denied.read_text().splitlines()) if event["event"] == "access_denied"
    ] == []


def add_rights(broker: BrokerOfUsers, piece: str, is_given: Callable[[int, str], bool]) -> None:
    for index, right in enumerate(rights_of(PIECES[piece], ["orders"], {"name": "shop", "group": "billing"})):
        given = [operation for operation in right.operations if is_given(index, operation)]
        if given:
            flags = ["--prefixed"] if right.is_prefixed else []
            semel_lines("acls", "add", f"User:{USER}", *given, right.resource, *flags, "--bootstrap", broker.open)


@pytest.mark.parametrize("piece", ["publisher", "outbox"])
def test_a_publisher_needs_no_right_on_the_group_that_its_reader_does_not_join(
    broker: BrokerOfUsers, engine: Engine, piece: str
) -> None:
    work, _ = WORK[piece]
    add_rights(broker, piece, lambda _, operation: operation != "describe")
    for number in range(2):
        work(broker, engine, number)


@pytest.mark.parametrize(
    ("piece", "number", "operation"),
    [
        (piece, number, operation)
        for piece in WORK
        for number, right in enumerate(PIECES[piece].rights)
        for operation in right.operations
        # A sink gets more lanes later, and the console's pages say themselves what they may not show.
        if operation not in ("describe", "alter") and piece != "console" and not right.is_optional
    ],
)
def test_a_piece_that_misses_a_right_names_it_at_its_first_start(
    broker: BrokerOfUsers,
    engine: Engine,
    caplog: pytest.LogCaptureFixture,
    piece: str,
    number: int,
    operation: str,
) -> None:
    """It does not take the refusal for a broker that is away, and does not do its work once and fail at the next."""
    work, _ = WORK[piece]
    add_rights(broker, piece, lambda index, one: (index, one) != (number, operation))
    with pytest.raises((PublishError, RelayFailed, LoopFailed, LogError, LaneFailed, AssertionError)) as failed:
        work(broker, engine, 0)
    # A message that may not be written is put aside, and the log says why.
    assert f"the right {operation.title().replace('-', '')} on" in f"{failed.value}\n{caplog.text}"


def test_the_rules_are_shown_as_the_commands_that_add_them(broker: BrokerOfUsers) -> None:
    names = (f"User:{USER}", "--topic", "orders", "--topic", "a-$", "--name", "shop")
    shown = semel_lines("acls", "for", "sink", *names)
    assert shown == [
        "semel acls add User:app write topic:orders",
        "semel acls add User:app write 'topic:a-$'",
        "semel acls add User:app read write create describe-configs alter topic:semel-progress-shop",
        "semel acls add User:app write transactional-id:semel-lane-shop- --prefixed",
    ]


def test_a_source_that_shows_how_far_it_is_needs_its_group() -> None:
    alone = semel_lines("acls", "for", "source", f"User:{USER}", *TOPIC)
    assert alone == ["semel acls add User:app read topic:orders"]
    shown = semel_lines("acls", "for", "source", f"User:{USER}", *TOPIC, "--group", "billing")
    assert shown == [*alone, "semel acls add User:app read group:billing"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_name_that_is_missing_is_asked_for(piece: str) -> None:
    """Except by the console, which looks at everything, and changes everything."""
    if piece in ("console", "console-changes"):
        assert len(semel_lines("acls", "for", piece, f"User:{USER}")) == len(PIECES[piece].rights)
    else:
        assert semel_failure("acls", "for", piece, f"User:{USER}") == f"the rules for {piece} need --topic"
