"""An aggregate is held against its rows: each wrong, missing or foreign total is named, with what it should be."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.audit import AuditFailed, Given, Total, WrongTotal, audit_totals
from semel_command import semel

ROWS = [("anna", 1_000, 4200), ("anna", 59_999, 800), ("bert", 2_000, 5), ("anna", 60_000, 100), ("bert", -1, 7)]
TOTALS = [("anna", 0, 2, 5000), ("anna", 60_000, 1, 100), ("bert", -60_000, 1, 7), ("bert", 0, 1, 5)]


def rows_of(rows: list[tuple[Any, Any, Any]]) -> Given:
    names, times, cents = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    table = pa.table({"who": pa.array(names, pa.string()), "at": pa.array(times, pa.int64()), "cents": cents})
    return Given(table, id="who", time="at", amount="cents", name="rows")


def totals_of(totals: list[tuple[str, int, int, int]]) -> Given:
    who, minute, orders, cents = (list(column) for column in zip(*totals, strict=True))
    table = pa.table({"who": who, "minute": minute, "orders": orders, "cents": cents})
    return Given(table, id="who", time="minute", amount="cents", name="totals")


def test_totals_that_are_those_of_their_rows_are_clean() -> None:
    verdict = audit_totals(rows_of(ROWS), totals_of(TOTALS), count="orders", window_ms=60_000)
    assert (verdict.is_clean, verdict.rows, verdict.totals) == (True, 5, 4)


@pytest.mark.parametrize(
    ("stored", "expected", "found"),
    [
        ([*TOTALS[:3], ("bert", 0, 1, 6)], Total(1, Decimal(5)), Total(1, Decimal(6))),
        ([*TOTALS[:3], ("bert", 0, 2, 5)], Total(1, Decimal(5)), Total(2, Decimal(5))),
        (TOTALS[:3], Total(1, Decimal(5)), None),
        ([*TOTALS, ("carl", 0, 1, 1)], None, Total(1, Decimal(1))),
        ([*TOTALS, TOTALS[3]], Total(1, Decimal(5)), Total(2, Decimal(10))),
    ],
    ids=["sum", "count", "missing", "foreign", "stored twice"],
)
def test_a_wrong_total_is_named_with_what_it_should_be(
    stored: list[tuple[str, int, int, int]], expected: Total | None, found: Total | None
) -> None:
    verdict = audit_totals(rows_of(ROWS), totals_of(stored), count="orders", window_ms=60_000)
    assert not verdict.is_clean
    [wrong] = verdict.wrong
    assert wrong == WrongTotal("carl" if expected is None else "bert", 0, expected, found)
    assert wrong.window == "1970-01-01T00:00:00+00:00"


def test_totals_without_windows_are_of_each_key() -> None:
    totals = pa.table({"who": ["anna", "bert"], "orders": [3, 2]})
    rows = pa.table({"who": [who for who, _, _ in ROWS]})
    assert audit_totals(Given(rows, id="who"), Given(totals, id="who"), count="orders").is_clean


def test_a_row_that_is_in_no_total_is_counted_and_never_left_out_silently() -> None:
    verdict = audit_totals(rows_of([*ROWS, (None, 1, 1), ("anna", None, 1)]), totals_of(TOTALS), window_ms=60_000)
    assert (verdict.is_clean, verdict.skipped, verdict.wrong_count) == (False, 2, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-200, 200), st.integers(-(10**15), 10**15)), min_size=1))
def test_every_aggregate_agrees_with_its_rows_and_not_with_one_row_more(rows: list[tuple[str, int, int]]) -> None:
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for who, at, cents in rows:
        groups[who, at // 60 * 60].append(cents)
    totals = totals_of([(who, at, len(cents), sum(cents)) for (who, at), cents in groups.items()])
    assert audit_totals(rows_of(rows), totals, count="orders", window_ms=60).is_clean
    more = audit_totals(rows_of([*rows, ("a", 0, 0)]), totals, count="orders", window_ms=60)
    assert (more.wrong_count, more.wrong[0].key) == (1, "a")


def test_what_cannot_be_compared_is_refused() -> None:
    without_time = Given(pa.table({"who": ["a"]}), id="who", name="rows")
    with pytest.raises(AuditFailed, match="rows: a window needs to know where its time is"):
        audit_totals(without_time, totals_of(TOTALS), count="orders", window_ms=60)
    with pytest.raises(AuditFailed, match="amounts are compared on both sides or on none"):
        audit_totals(without_time, totals_of(TOTALS), count="orders")
    with pytest.raises(AuditFailed, match="nothing to compare"):
        audit_totals(without_time, without_time)


def test_the_command_shows_what_differs_and_its_exit_code_says_so(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as file, file:
        file.execute("CREATE TABLE orders (customer TEXT, at TEXT, cents INTEGER)")
        file.execute("CREATE TABLE totals (customer TEXT, minute TEXT, orders INTEGER, cents INTEGER)")
        orders = [("anna", "2026-07-01 12:00:10", 4200), ("anna", "2026-07-01 12:00:40", 800)]
        file.executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
        file.execute("INSERT INTO totals VALUES ('anna', '2026-07-01 12:00:00', 2, 5000)")
    arguments = [
        "audit",
        "totals",
        f"--source=sqlite:{tmp_path}/shop.db/orders?id=customer&time=at&amount=cents",
        f"--sink=sqlite:{tmp_path}/shop.db/totals?id=customer&time=minute&amount=cents",
        "--count=orders",
        "--window=1m",
    ]
    ran = semel(*arguments)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "clean: every total is that of its rows")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as file, file:
        file.execute("UPDATE totals SET cents = 800, orders = 1")
    ran = semel(*arguments)
    assert ran.returncode == 1
    assert "1 total is not that of its rows" in ran.stdout
    assert "anna  2026-07-01T12:00:00+00:00     2      1            5,000  800" in ran.stdout
    assert semel(*arguments, "--json").stdout.count('"amount": "5000"') == 1
