"""`semel reset` deletes what a query has made, and only that, and can be run again."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from semel.database import engine_of
from semel.testing.broker import FaultyBroker
from semel_command import semel, semel_failure


def made(directory: Path) -> Path:
    """What a query leaves, beside what another one has made."""
    checkpoint = directory / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text("{}")
    (checkpoint / "offsets/0").write_text("v1")
    for name in ("lake", "lake_quarantine"):
        (directory / name / "_delta_log").mkdir(parents=True)
        (directory / name / "_delta_log/0.json").write_text("{}")
    with closing(sqlite3.connect(directory / "shop.db")) as file, file:
        file.execute("CREATE TABLE semel_batches (sink_id TEXT PRIMARY KEY, batch_id INTEGER)")
        file.execute("INSERT INTO semel_batches VALUES ('orders', 4), ('others', 7)")
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
    arguments = (
        "reset",
        f"--checkpoint={checkpoint}",
        f"--sink=sqlite:///{tmp_path}/shop.db/orders",
        f"--sink=delta:{tmp_path}/lake",
        f"--sink=semel://{semel_broker.bootstrap}/alerts?sink_id=warnings",
    )
    ran = semel(*arguments, "--yes")
    assert (ran.returncode, ran.stderr) == (0, "")
    shown = [" ".join(line.replace(str(tmp_path), "").split()) for line in ran.stdout.splitlines()]
    assert shown == [
        "sqlite:/shop.db/orders 2 rows",
        "sqlite:/shop.db/orders_quarantine 1 row",
        "sqlite:/shop.db/semel_batches 1 claim",
        "delta /lake 1 file",
        "delta /lake_quarantine 1 file",
        "topic alerts 1 offset",
        "topic semel-progress-warnings 0 offsets",
        "checkpoint /checkpoint 2 files",
        "deleted: when the query starts, it begins at startingOffsets, with batch 0",
    ]
    assert rows(tmp_path) == [[], [("others", "{}")], [("others", 7)]]
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
            "CREATE TABLE semel_batches (sink_id VARCHAR(99) PRIMARY KEY, batch_id INTEGER)",
            "INSERT INTO semel_batches VALUES ('orders', 4), ('others', 7)",
            "CREATE TABLE orders (id VARCHAR(99))",
            "INSERT INTO orders VALUES ('o-1'), ('o-2')",
        ):
            connection.execute(text(statement))
    place, question, options = url.partition("?")
    ran = semel("reset", "--yes", f"--checkpoint={made(tmp_path)}", f"--sink={place}/orders")
    assert (ran.returncode, options) == (0, ""), ran.stderr + question
    with engine.connect() as connection:
        assert connection.execute(text("SELECT * FROM orders")).all() == []
        assert connection.execute(text("SELECT * FROM semel_batches")).all() == [("others", 7)]
    engine.dispose()


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
        ("sqlite:shop.db/orders?sinkid=a", "a sink of sqlite has no option sinkid"),
        ("semel://127.0.0.1:9092/alerts", "says too little"),
    ):
        assert complaint in semel_failure("reset", "--checkpoint=nowhere", f"--sink={address}")
