"""`semel audit` as it is used at a terminal and from a script: what it says, and with which code it ends."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forked import SECONDS_MAX
from semel_command import semel, started

# Where no broker is.
NOBODY = "semel://127.0.0.1:1/payments?id=key&kafka.default.api.timeout.ms=100"
KEY = "000102030405060708090a0b0c0d0e0f"


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Three payments, one in each minute of 1970."""
    table = pa.table({"id": ["p1", "p2", "p3"], "at": [0, 60_000, 120_000], "amount": [1.5, 2.0, 4.25]})
    pq.write_table(table, tmp_path / "sent.parquet")
    return f"parquet:{tmp_path}/sent.parquet?id=id&time=at&amount=amount"


def sink(directory: Path, *rows: tuple[str, int, float]) -> str:
    with closing(sqlite3.connect(directory / "app.db")) as connection, connection:
        connection.execute("CREATE TABLE payments (id TEXT, at INTEGER, amount REAL)")
        connection.executemany("INSERT INTO payments VALUES (?, ?, ?)", rows)
    return f"sqlite:{directory}/app.db/payments?id=id&time=at&amount=amount"


def test_a_clean_audit_says_so_and_ends_with_0(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p3", 120_000, 4.25), ("p1", 0, 1.5), ("p2", 60_000, 2.0))
    ran = semel("audit", "--source", source, "--sink", stored)
    assert (ran.returncode, ran.stderr) == (0, "")
    head, first, second, _, counts, last = ran.stdout.splitlines()
    assert head.split() == ["rows", "lost", "doubled", "foreign", "altered", "amount"]
    assert first.split()[-2:] == ["3", "7.75"]
    assert second.split()[-6:] == ["3", "0", "0", "0", "0", "7.75"]
    assert counts.startswith("6 rows in ")
    assert last == "clean: every record is stored exactly once"


def test_what_is_wrong_is_named_and_the_end_is_1(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p1", 0, 1.5), ("p1", 0, 1.5), ("p2", 60_000, 2.5), ("mine", 0, 0.0))
    ran = semel("audit", "--source", source, "--sink", stored, "--window", "1m", "--key", KEY)
    assert (ran.returncode, ran.stderr) == (1, "")
    told = ran.stdout.replace(f"sqlite:{tmp_path}/app.db/payments: ", "")
    for lines in (
        "1 lost (sent, and not there)\n  p3\n",
        "1 doubled (there more often than sent)\n  p1\n",
        "1 foreign (there, and never sent)\n  mine\n",
        "1 altered (there, with another amount or in another window)\n  p2\n",
        "windows that differ\n  window                    source  sink\n  1970-01-01T00:00:00.000Z       1     3\n",
    ):
        assert lines in told, ran.stdout
    assert ran.stdout.endswith("NOT CLEAN: 1 lost, 1 doubled, 1 foreign, 1 altered\n")
    assert f"key {KEY}" in ran.stdout


def test_what_cannot_be_read_is_named_and_the_end_is_1(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p1", 0, 1.5), ("p2", "soon", 2.0), ("p3", 120_000, "much"))  # type: ignore[arg-type]
    ran = semel("audit", "--source", source, "--sink", stored, "--window", "1m")
    assert (ran.returncode, ran.stderr) == (1, "")
    told = ran.stdout.replace(f"sqlite:{tmp_path}/app.db/payments: ", "")
    assert "2 rows whose time or amount cannot be read, so nothing can be said of it\n  p2\n  p3\n" in told
    assert ran.stdout.endswith("NOT CLEAN: 2 altered, 2 unreadable\n")


def test_rows_without_an_id_are_clean_if_they_are_counted_and_as_many(tmp_path: Path) -> None:
    for name, ids in (("sent", ["p1", None]), ("alike", [None, "p1"]), ("fewer", ["p1"])):
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{name}.parquet")
    sent, alike, fewer = (f"parquet:{tmp_path}/{name}.parquet?id=id" for name in ("sent", "alike", "fewer"))
    ran = semel("audit", "--source", sent, "--sink", alike)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (1, "NOT CLEAN: 2 without an id")
    assert "1 more row has no id, so nothing can be said of it; see --count-without-id" in ran.stdout
    ran = semel("audit", "--source", sent, "--sink", alike, "--count-without-id")
    assert ran.stdout.endswith("stored exactly once; 1 without an id on each side, only counted\n")
    assert ran.returncode == 0
    ran = semel("audit", "--source", sent, "--sink", fewer, "--count-without-id")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (1, "NOT CLEAN: 1 without an id on one side only")


@pytest.mark.parametrize(("ids", "code"), [(["p1", "p2", "p3"], 0), ([f"x{number}" for number in range(5_000)], 1)])
def test_a_verdict_is_kept_and_is_the_exit_code_although_nobody_reads_it(
    tmp_path: Path, ids: list[str], code: int
) -> None:
    for name, values in (("sent", ["p1", "p2", "p3"]), ("stored", ids)):
        pq.write_table(pa.table({"id": values}), tmp_path / f"{name}.parquet")
    sides = [
        f"--{side}=parquet:{tmp_path}/{name}.parquet?id=id" for side, name in (("source", "sent"), ("sink", "stored"))
    ]
    audit = started("audit", *sides, "--limit=5000", f"--keep={tmp_path / 'kept'}")
    assert audit.stdout is not None
    audit.stdout.close()
    assert audit.wait(SECONDS_MAX) == code
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert audit.stderr is not None
    assert audit.stderr.read() == ""


def test_an_id_that_fills_the_screen_is_cut_off(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p1", 0, 1.5), ("p2", 60_000, 2.0), ("p3", 120_000, 4.25), ("x" * 100_000, 0, 0.0))
    ran = semel("audit", "--source", source, "--sink", stored)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert f"\n  {'x' * 200}... (100,000 characters)\n" in ran.stdout


def test_a_script_gets_the_verdict_as_json(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p1", 0, 1.5), ("p2", 60_000, 2.0))
    ran = semel("audit", "--source", source, "--sink", stored, "--json", "--limit", "0")
    assert ran.returncode == 1
    verdict = json.loads(ran.stdout)
    assert (verdict["clean"], verdict["source"]["rows"], verdict["source"]["amount"]) == (False, 3, "7.75")
    assert verdict["sinks"][0]["lost"] == {"rows": 1, "ids": 1, "listed": [], "repeats": 0}


def test_only_the_events_before_a_time_are_asked_for(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p1", 0, 1.5), ("p2", 60_000, 2.0))
    asked = ("audit", "--source", source, "--sink", stored)
    assert semel(*asked).returncode == 1
    assert semel(*asked, "--before", "1970-01-01T00:02:00Z").returncode == 0
    assert semel(*asked, "--since", "60000", "--before", "120000").returncode == 0


def test_what_the_source_has_twice_may_be_expected_once(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["p1", "p1", "p2"]}), tmp_path / "sent.parquet")
    pq.write_table(pa.table({"id": ["p1", "p2"]}), tmp_path / "stored.parquet")
    addresses = (f"--source=parquet:{tmp_path}/sent.parquet?id=id", f"--sink=parquet:{tmp_path}/stored.parquet?id=id")
    ran = semel("audit", *addresses)
    assert ran.returncode == 1
    assert (
        "1 lost (sent, and not there; all of them repeat an id that is there: --once expects each id once)"
        in ran.stdout
    )
    assert semel("audit", *addresses, "--once").returncode == 0


def test_more_ids_than_are_asked_for_are_counted_and_not_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": list(range(1500))}), tmp_path / "sent.parquet")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "stored.parquet")
    addresses = (f"--source=parquet:{tmp_path}/sent.parquet?id=id", f"--sink=parquet:{tmp_path}/stored.parquet?id=id")
    ran = semel("audit", *addresses, "--limit", "2")
    assert (
        f"parquet:{tmp_path}/stored.parquet: 1,500 lost (sent, and not there); the first 2\n  0\n  1\n\n" in ran.stdout
    )


def test_several_processes_say_the_same(source: str, tmp_path: Path) -> None:
    asked = ("audit", "--source", source, "--sink", sink(tmp_path, ("p1", 0, 1.5)), "--json", "--key", KEY)
    assert semel(*asked, "--processes", "2").stdout == semel(*asked).stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "name the places to compare"),
        (("--source", "parquet:/nothing?id=id"), "name the places to compare"),
        (("--source", "parquet:/nothing?id=id", "--sink", "parquet:/nothing?id=id"), "/nothing: there is no such file"),
        (("--source", "here?id=id", "--sink", "there?id=id"), "is not an address"),
        (
            ("--source", NOBODY, "--sink", "parquet:/x?id=id"),
            "cannot connect",
        ),
        (("parquet", "/nothing"), "/nothing: there is no such directory"),
    ],
)
def test_where_nothing_can_be_said_one_line_says_why_and_the_end_is_2(words: tuple[str, ...], reason: str) -> None:
    ran = semel("audit", *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert reason in ran.stderr
    assert ran.stderr.startswith("semel: ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("--window", "soon"), ("--before", "noon"), ("--limit", "-1"), ("--buckets", "many"), ("--json", "extra")]
)
def test_an_argument_that_cannot_be_ends_with_2(words: tuple[str, ...]) -> None:
    ran = semel("audit", *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr


def test_readers_of_a_directory_are_checked(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    assert semel("audit", "parquet", str(tmp_path)).returncode == 0
    (tmp_path / "_spark_metadata").mkdir()
    entry = json.dumps({"path": (tmp_path / "a.parquet").as_uri(), "action": "add"})
    (tmp_path / "_spark_metadata/0").write_text(f"v1\n{entry}")
    clean = semel("audit", "parquet", str(tmp_path), "--id", "id")
    assert (clean.returncode, clean.stdout.splitlines()[-1]) == (0, "clean: every reader sees the same rows")
    pq.write_table(pa.table({"id": [2, 3]}), tmp_path / "b.parquet")
    ran = semel("audit", "parquet", str(tmp_path), "--id", "id")
    assert ran.returncode == 1
    assert "1 file not committed\n  b.parquet\n" in ran.stdout
    assert ran.stdout.endswith(
        "NOT CLEAN: a reader that ignores _spark_metadata sees 2 rows too many, in 1 file; "
        "1 of them doubled, 1 never committed\n"
    )
    assert json.loads(semel("audit", "parquet", str(tmp_path), "--json").stdout)["uncommitted"]["rows"] == 2


def test_a_verdict_that_was_kept_is_what_the_audit_said(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p3", 120_000, 4.25), ("p3", 120_000, 4.25))
    ran = semel("audit", "--source", source, "--sink", stored, "--keep", str(tmp_path / "audits"), "--json")
    (kept,) = (tmp_path / "audits").iterdir()
    told = json.loads(kept.read_text())
    assert (ran.returncode, told["verdict"]) == (1, json.loads(ran.stdout))
    assert told["asked"]["once"] is False


def test_an_event_may_be_in_the_quarantine_of_a_sink(source: str, tmp_path: Path) -> None:
    stored = sink(tmp_path, ("p1", 0, 1.5), ("p2", 60_000, 2.0))
    quarantine = tmp_path / "quarantine.parquet"
    pq.write_table(pa.table({"row": ['{"id": "p3", "at": 120000, "amount": 4.25}']}), quarantine)
    beside = f"parquet:{quarantine}?id=row.$.id&time=row.$.at&amount=row.$.amount"
    ran = semel("audit", "--source", source, "--sink", stored, "--or", beside, "--window", "1m")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"sink    sqlite:{tmp_path}/app.db/payments or parquet:{quarantine}" in ran.stdout
    misplaced = semel("audit", "--source", source, "--or", beside)
    assert misplaced.returncode == 2
    assert misplaced.stderr.splitlines()[-1].endswith("--or names another place of a sink: put it after a --sink")
