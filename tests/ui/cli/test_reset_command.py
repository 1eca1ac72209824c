"""`semel reset` deletes what a query has made, and only that, and can be run again."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from semel.database import engine_of
from semel.spark.lanes.progress import encode
from semel.spark.lanes.protocol import Digest, Marker, Order, Written
from semel.spark.tables.delta_claims import app_ids, number_of
from semel.testing.broker import FaultyBroker
from semel_command import semel, semel_failure

QUERY, OTHER = "4fd3a0c2-5a1e-4f0e-9d6b-1c9e7a2b3c4d", "91bb7d10-0f8e-4a57-8a39-6a0d8b5c2e1f"


def made(directory: Path) -> Path:
    """What a query leaves, beside what another one has made."""
    checkpoint = directory / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    (checkpoint / "offsets/0").write_text("v1")
    for name in ("lake", "lake_quarantine"):
        (directory / name / "_delta_log").mkdir(parents=True)
        claims = [{"txn": {"appId": one, "version": number_of(QUERY)}} for one in app_ids("semel")]
        (directory / name / "_delta_log/0.json").write_text("\n".join(map(json.dumps, claims)))
    with closing(sqlite3.connect(directory / "shop.db")) as file, file:
        file.execute("CREATE TABLE semel_batches (sink_id TEXT PRIMARY KEY, query_id TEXT)")
        file.execute("INSERT INTO semel_batches VALUES ('orders', ?), ('others', ?)", (QUERY, OTHER))
        file.execute("CREATE TABLE orders (id TEXT)")
        file.execute("INSERT INTO orders VALUES ('o-1'), ('o-2')")
        file.execute("CREATE TABLE orders_quarantine (sink_id TEXT, row TEXT)")
        file.execute("INSERT INTO orders_quarantine VALUES ('orders', '{}'), ('others', '{}')")
    return checkpoint


def rows(directory: Path) -> list[object]:
    with closing(sqlite3.connect(directory / "shop.db")) as file:
        tables = ("orders", "orders_quarantine", "semel_batches")
        return [file.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def test_all_that_a_query_has_made_is_shown_and_deleted_and_nothing_else(
    tmp_path: Path, semel_broker: FaultyBroker
) -> None:
    checkpoint = made(tmp_path)
    for topic in ("alerts", "semel-progress-warnings", "semel-progress-others"):
        semel_broker.create_topic(topic)
    semel_broker.seed("alerts", "large")
    written = Marker("warnings", 0, 1, Order.CONSECUTIVE, (Written(QUERY, 4, Digest()),))
    semel_broker.seed("semel-progress-warnings", encode(written))
    arguments = (
        "reset",
        f"--checkpoint={checkpoint}",
        f"--sink=sqlite:///{tmp_path}/shop.db/orders",
        f"--sink=delta:{tmp_path}/lake",
        f"--sink=semel://{semel_broker.bootstrap}/alerts?sink_id=warnings",
    )
    ran = semel(*arguments, "--yes")
    assert (ran.returncode, ran.stderr) == (0, "")
    place = f"semel://{semel_broker.bootstrap}"
    shown = [" ".join(line.replace(str(tmp_path), "").split()) for line in ran.stdout.splitlines()]
    assert shown == [
        "sqlite:/shop.db/orders 2 rows",
        "sqlite:/shop.db/orders_quarantine 1 row",
        "sqlite:/shop.db/semel_batches 1 claim",
        "delta:/lake 1 file",
        "delta:/lake_quarantine 1 file",
        f"{place}/alerts 1 offset",
        f"{place}/semel-progress-warnings 1 offset",
        "checkpoint /checkpoint 2 files",
        "deleted: when the query starts, it begins at startingOffsets, with batch 0",
    ]
    assert rows(tmp_path) == [[], [("others", "{}")], [("others", OTHER)]]
    assert semel_broker.topics() == ["semel-progress-others"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.db"]
    again = semel(*arguments, "--yes")
    assert again.returncode == 0
    assert again.stdout.count("is not there") == 4


@pytest.mark.parametrize("fixture", ["postgres_url", "mariadb_url"])
def test_the_rows_and_the_claim_of_a_table_on_a_server_are_deleted(
    fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(fixture)
    engine = engine_of(url)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE semel_batches (sink_id VARCHAR(99) PRIMARY KEY, query_id VARCHAR(99))",
            f"INSERT INTO semel_batches VALUES ('orders', '{QUERY}'), ('others', '{OTHER}')",
            "CREATE TABLE orders (id VARCHAR(99))",
            "INSERT INTO orders VALUES ('o-1'), ('o-2')",
        ):
            connection.execute(text(statement))
    place, question, options = url.partition("?")
    ran = semel("reset", "--yes", f"--checkpoint={made(tmp_path)}", f"--sink={place}/orders")
    assert (ran.returncode, options) == (0, ""), ran.stderr + question
    scheme, _, rest = place.partition("://")
    assert f"{scheme.partition('+')[0]}://{rest}/orders " in ran.stdout, "it can be pasted"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM orders")).all() == []
        assert connection.execute(text("SELECT * FROM semel_batches")).all() == [("others", OTHER)]
    engine.dispose()


def of_another_query(directory: Path) -> Path:
    checkpoint = made(directory)
    (checkpoint / "metadata").write_text(json.dumps({"id": OTHER}))
    return checkpoint


def test_a_checkpoint_of_another_query_than_the_claim_of_a_sink_is_refused_by_both_ids_and_nothing_is_deleted(
    tmp_path: Path, semel_broker: FaultyBroker
) -> None:
    checkpoint = of_another_query(tmp_path)
    for topic in ("alerts", "semel-progress-warnings"):
        semel_broker.create_topic(topic)
    written = Marker("warnings", 0, 1, Order.CONSECUTIVE, (Written(QUERY, 4, Digest()),))
    semel_broker.seed("semel-progress-warnings", encode(written))
    others = f"--sink=sqlite:{tmp_path}/shop.db/orders?sink_id=others"
    for sink, named in (
        (f"sqlite:{tmp_path}/shop.db/orders", QUERY),
        (f"delta:{tmp_path}/lake", f"number {number_of(QUERY)} (this one is {number_of(OTHER)})"),
        (f"semel://{semel_broker.bootstrap}/alerts?sink_id=warnings", QUERY),
    ):
        said = semel_failure("reset", "--yes", f"--checkpoint={checkpoint}", others, f"--sink={sink}", "--already-gone")
        assert f"has the claim of query {named}, and {checkpoint} is of query {OTHER}: nothing was deleted" in said
    assert rows(tmp_path)[2] == [("orders", QUERY), ("others", OTHER)]
    assert len(list(checkpoint.iterdir())) == len(semel_broker.topics()) == len(list(tmp_path.glob("lake/*/*"))) + 1


def test_a_checkpoint_stays_if_a_sink_has_no_claim_of_its_query_unless_the_user_says_that_it_is_gone(
    tmp_path: Path, semel_broker: FaultyBroker
) -> None:
    checkpoint = made(tmp_path)
    sinks = (
        f"sqlite:{tmp_path}/shop.db/misspelt",
        f"sqlite:{tmp_path}/shop.db/misspelt?sink_id=orders",
        f"delta:{tmp_path}/misspelt",
        f"semel://{semel_broker.bootstrap}/alerts?sink_id=misspelt",
    )
    for sink in sinks:
        said = semel_failure("reset", "--yes", f"--checkpoint={checkpoint}", f"--sink={sink}")
        assert "nothing was deleted: is the sink's name right?" in said
        assert "has not written its first batch yet" in said
        assert "pass --already-gone" in said
    assert checkpoint.exists()
    ran = semel("reset", "--yes", "--already-gone", f"--checkpoint={checkpoint}", f"--sink={sinks[0]}")
    assert (ran.returncode, checkpoint.exists()) == (0, False)
    assert rows(tmp_path)[0] == [("o-1",), ("o-2",)]


def test_a_checkpoint_that_names_no_query_is_refused(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    (checkpoint / "metadata").write_text("{}")
    assert "its metadata has no id" in semel_failure("reset", "--yes", f"--checkpoint={checkpoint}")
    assert checkpoint.exists()


def test_nothing_is_deleted_without_a_yes(tmp_path: Path) -> None:
    checkpoint = made(tmp_path)
    ran = semel("reset", f"--checkpoint={checkpoint}", f"--sink=sqlite:{tmp_path}/shop.db/orders")
    assert (ran.returncode, ran.stderr) == (1, "semel: deleting cannot be undone; stop the query, and pass --yes\n")
    assert checkpoint.exists()
    assert rows(tmp_path)[0] == [("o-1",), ("o-2",)]


def test_a_directory_that_is_no_checkpoint_is_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    made(tmp_path)
    arguments = ("reset", "--yes", f"--sink=sqlite:{tmp_path}/shop.db/orders")
    ran = semel(*arguments, f"--checkpoint={tmp_path}")
    assert (ran.returncode, ran.stderr) == (
        1,
        f"semel: {tmp_path} is no checkpoint of a query, and nothing was deleted: it has no metadata\n",
    )
    assert rows(tmp_path)[0] == [("o-1",), ("o-2",)]


def test_a_sink_that_cannot_be_understood_is_refused_by_its_address() -> None:
    for address, complaint in (
        (
            "oracle://host/db/orders",
            "is no sink: a sink begins with sqlite:, postgresql:, mysql:, mariadb:, delta:, iceberg:, semel:",
        ),
        ("postgresq://host/db/orders", "is no sink; was postgresql: meant?"),
        ("sqlite:shop.db/orders?sinkid=a", "a sink of sqlite has no option sinkid"),
        ("semel://127.0.0.1:9092/alerts", "says too little"),
    ):
        assert complaint in semel_failure("reset", "--checkpoint=nowhere", f"--sink={address}")
