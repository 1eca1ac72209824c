"""Holds that a URL names one store, or is refused in one line that shows how to write it."""

import pytest

from semel.store import StoreRefused, open_store


@pytest.mark.parametrize(
    "url",
    [
        *("", "\n", "postgres", "/srv/semel", "memory:", "ftp://host/dir", "http://["),
        *("file:", "file:///", "file://host/dir", "file://dir", "file:///dir?x=1", "file:relative"),
    ],
)
def test_what_names_no_store_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(StoreRefused, match="write") as refusal:
        open_store(url)
    assert "\n" not in str(refusal.value)


def test_a_store_says_where_it_is(tmp_path: object) -> None:
    assert open_store(f"file://{tmp_path}/a%20b").describe() == f"file://{tmp_path}/a b"
