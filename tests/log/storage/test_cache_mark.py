"""The mark of a directory that is the cache of a log in a store: it says whose cache, wherever the store is by now."""

from semel.log.storage.cache import mark_as_cache, store_of, take_as_cache
from semel.log.storage.files import MemoryFiles

LONG, SHORT = "s3://a-bucket-of-long-ago/and/a/prefix", "file:///store"


def test_a_cache_whose_store_was_moved_to_a_shorter_address_is_still_that_of_its_cluster() -> None:
    """The next start was refused: the id of the cluster had the end of the longer address behind it."""
    files = MemoryFiles()
    for before, store in (("", LONG), ("a cluster", SHORT), ("a cluster", LONG)):
        assert take_as_cache(files) == before
        mark_as_cache(files, store, "a cluster")
        assert store_of(files) == store
        files.close()


def test_a_directory_without_a_mark_is_nobodys_cache() -> None:
    files = MemoryFiles()
    assert take_as_cache(files) == ""
    assert store_of(files) is None
