"""The address of a store: which engine a URL names. Only that engine is imported, since most brokers have no store."""

import difflib
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from semel.log.store.contract import Store, StoreRefused, check_folder

EXAMPLES: Final = "file:///srv/semel, s3://bucket/prefix or postgresql://user@host/database?prefix=name"
SCHEMES: Final = ("file", "s3", "postgresql", "postgres")
# The options of a URL; if one is missing, the AWS_* variables of the environment count.
BUCKET_OPTIONS: Final = ("endpoint", "region", "access_key_id", "secret_access_key")


def open_store(url: str, *, may_be_new: bool = True) -> Store:
    """The store at this URL: `file:///dir`; `s3://bucket/prefix`, with `?endpoint=http://host:port` where the store is
    not Amazon's; or `postgresql://user@host/database?prefix=name`, with `&allow_async=1` if commits need not wait for a
    standby. Raises StoreRefused. A directory is created if it does not exist, unless the caller only reads: then it is
    refused without `may_be_new`.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreRefused(f"{_shown(url)} is not the URL of a store ({error}): write {EXAMPLES}") from None
    if parts.scheme == "file":
        return _directory(url, parts, may_be_new)
    if parts.scheme == "s3":
        return _bucket(parts)
    if parts.scheme in SCHEMES:
        from semel.log.store.postgres import PostgresStore
        from semel.log.store.threads import ThreadedStore

        return ThreadedStore(PostgresStore(parts))
    close = difflib.get_close_matches(parts.scheme, SCHEMES, n=1)
    meant = f"; was {close[0]}:// meant?" if close else f": write {EXAMPLES}"
    raise StoreRefused(f"{_shown(url)} names no store that semel knows{meant}")


def _shown(url: str) -> str:
    """The URL as a message may show it: without anything that may be a password or a key. In a URL with a mistake, it
    is unknown what is what.
    """
    if "@" in url or "?" in url:
        scheme = re.match(r"[a-z0-9+]+(?=://)", url)
        return f"'{scheme[0]}://...'" if scheme else "this"
    return repr(url)


def _directory(url: str, parts: SplitResult, may_be_new: bool) -> Store:
    is_path = url.startswith("file:///") and parts.path != "/" and "\0" not in unquote(parts.path)
    if not is_path or parts.query or parts.fragment:
        raise StoreRefused(f"{url!r} names no directory: write file:///dir, with three slashes")
    from semel.log.store.directory import DirectoryStore
    from semel.log.store.threads import ThreadedStore

    root = Path(unquote(parts.path))
    if not may_be_new and not os.path.isdir(root):
        raise StoreRefused(f"{url}: there is no such directory")
    return ThreadedStore(DirectoryStore(root))


def _bucket(parts: SplitResult) -> Store:
    # No message repeats the query, because it may contain a secret.
    shown = f"s3://{parts.netloc}{parts.path}"
    prefix = parts.path.strip("/")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "@" in "".join((parts.netloc, parts.path, parts.fragment, *options)):
        raise StoreRefused("a store at s3:// has its keys in AWS_* variables, or as options: write s3://bucket/prefix")
    try:
        check_folder(prefix)
    except ValueError as error:
        raise StoreRefused(f"{shown}: {error}: write s3://bucket/prefix") from None
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]+", parts.netloc) or parts.fragment:
        raise StoreRefused(f"{shown} names no bucket: write s3://bucket/prefix")
    for name, value in options.items():
        if name not in BUCKET_OPTIONS or not value:
            raise StoreRefused(f"{shown}: no such option as {name!r}: there are {', '.join(BUCKET_OPTIONS)}")
    if "endpoint" in options and not _is_endpoint(options["endpoint"]):
        raise StoreRefused(f"{shown}: the endpoint is not a URL: write ?endpoint=http://host:port")
    from semel.log.store.bucket import BucketStore

    return BucketStore(parts.netloc, prefix, options)


def _is_endpoint(url: str) -> bool:
    """Whether obstore can use this endpoint; it panics over some others."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
