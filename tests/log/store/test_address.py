"""Holds that a URL names one store, or is refused in one line that shows how to write it."""

import pytest

from semel.log.store import StoreRefused, open_store


@pytest.mark.parametrize(
    "url",
    [
        *("", "\n", "postgres", "/srv/semel", "memory:", "ftp://host/dir", "http://["),
        *("s3:", "s3://", "s3:///prefix", "s3://Bucket/prefix", "s3://bucket/../prefix", "s3://bucket/a//b"),
        *("s3://bucket/prefix#x", "s3://bucket?endpoint=", "s3://bucket?endpoint=host:80"),
        *("file:", "file:///", "file://host/dir", "file://dir", "file:///dir?x=1", "file:relative"),
        "file:///dir/%00",
    ],
)
def test_what_names_no_store_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(StoreRefused, match=r"write|there are") as refusal:
        open_store(url)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        *("s3://bucket/p?password=hidden", "s3://bucket/p?secret_access_key=hidden"),
        *("s3://key:hidden@bucket/p", "s3://key:a/hidden@bucket/p", "s3://key:a//hidden@bucket/p"),
        *("s3://key:a?hidden@bucket/p", "s3://key:a#hidden@bucket/p"),
        *("postgressql://user:hidden@host/db", "http://host?password=hidden", "postgresql://user:a[hidden@host/db"),
        *("postgresql://user:a/hidden@host/db", "postgresql://user:a?hidden@host/db"),
        *("postgresql://user:a#hidden@host/db", "postgresql://user:hidden@host/db#x"),
        *("postgresql://user:hidden@[::1]x/db", "postgresql://user:hidden@host/db?pasword=hidden"),
        "postgresql://user:hidden%ff@host/db?nothing=1",
    ],
)
def test_a_message_about_a_url_does_not_repeat_its_secrets(url: str) -> None:
    with pytest.raises(StoreRefused) as refusal:
        open_store(url)
    assert "hidden" not in str(refusal.value)


def test_the_scheme_that_was_meant_is_suggested() -> None:
    with pytest.raises(StoreRefused, match=r"'postgressql://\.\.\.' names no store .*; was postgresql:// meant\?"):
        open_store("postgressql://user:hidden@host/db")


@pytest.mark.parametrize("endpoint", ["http://", "http://host:99999", "http://host:x", "http://[host", "ftp://host"])
def test_an_endpoint_over_which_the_client_library_would_break_down_is_refused(endpoint: str) -> None:
    keys = "access_key_id=key&secret_access_key=hidden&region=here"
    with pytest.raises(StoreRefused, match=r"write \?endpoint=http://host:port"):
        open_store(f"s3://bucket/p?endpoint={endpoint}&{keys}")


def test_a_store_says_where_it_is(tmp_path: object) -> None:
    assert open_store(f"file://{tmp_path}/a%20b").describe() == f"file://{tmp_path}/a b"
    keys = "access_key_id=key&secret_access_key=hidden"
    assert open_store(f"s3://bucket/a/b/?{keys}").describe() == "s3://bucket/a/b"
    assert open_store("s3://bucket").describe() == "s3://bucket"
