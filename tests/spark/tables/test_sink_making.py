"""What is refused when a sink into SQL is made, before there is a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semel.spark import sql_sink
from semel.spark.tables.sql_sink import path_of

ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"mode": "replace"}, "is none of append, upsert, merge"),
    ({"key": "id"}, 'use mode="upsert"'),
    ({"mode": "upsert"}, "needs key="),
    ({"version": "v"}, "decides between two rows"),
    ({"mode": "upsert", "key": "id", "version": "id"}, "is part of the key"),
    ({"mode": "merge"}, "belong together"),
    ({"mode": "merge", "merge": "DELETE FROM t"}, "names its rows as {rows}"),
    ({"mode": "merge", "key": "id", "merge": {"a": "avg"}}, "is none of sum, min, max"),
    ({"mode": "merge", "merge": {"a": "sum"}}, "needs key="),
    ({"mode": "merge", "key": "a", "merge": {"a": "sum"}}, "in key and in merge"),
]


@pytest.mark.parametrize(("arguments", "complaint"), ARGUMENTS)
def test_arguments_that_do_not_go_together_are_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the message is compared below, as it stands)
        sql_sink("sqlite:///rows.db", "rows", **arguments)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///shop.db", "shop.db"),
        ("sqlite:shop.db", "shop.db"),
        ("sqlite:////data/shop.db", "/data/shop.db"),
        ("sqlite:/data/shop.db", "/data/shop.db"),
    ],
)
def test_a_file_is_named_as_in_other_urls_or_as_the_audit_names_it(url: str, path: str) -> None:
    assert path_of(url) == path


@pytest.mark.parametrize(
    "url", ["oracle://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:", "sqlite://rows.db", "rows.db"]
)
def test_an_address_that_is_no_database_of_ours_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="SQL"):
        sql_sink(url, "rows")


def test_an_address_that_is_refused_shows_no_password() -> None:
    with pytest.raises(ValueError, match="an address without one") as refused:
        sql_sink("host=localhost password=secret", "rows")
    assert "secret" not in str(refused.value)


def test_a_database_that_cannot_be_reached_is_refused_when_the_sink_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no directory /nowhere"):
        sql_sink("sqlite:////nowhere/rows.db", "payments")
    (tmp_path / "text.db").write_text("this is no database, " * 100)
    with pytest.raises(RuntimeError, match=r"text\.db: file is not a database"):
        sql_sink(f"sqlite:///{tmp_path}/text.db", "payments")
    with pytest.raises(
        ConnectionError,
        match=r"sink 'postgresql:payments' cannot reach PostgreSQL at 127\.0\.0\.1:1/shop .* payments: .*refused",
    ) as refused:
        sql_sink("postgresql://app:secret@127.0.0.1:1/shop", "payments")
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
