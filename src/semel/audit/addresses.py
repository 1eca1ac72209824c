"""Addresses of what is audited: one line of text that says where the rows are, and which columns count.

    semel://HOST:PORT/TOPIC?id=key           also header.NAME, or value.$.payment.id for JSON; kafka.* as for Spark
    parquet:DIR?id=COLUMN                    a directory, or one file
    delta:DIR?id=COLUMN                      or delta:s3://BUCKET/TABLE, storage.KEY=... for deltalake; version=N
    iceberg:NAMESPACE.TABLE?id=COLUMN        catalog=NAME, catalog.KEY=... as pyiceberg has them; ref=BRANCH, snapshot=N
    postgresql://USER@HOST/DATABASE/TABLE?id=COLUMN    TABLE or SCHEMA.TABLE; what libpq knows, such as sslmode=require
    mysql://USER@HOST/DATABASE/TABLE?id=COLUMN    or mariadb://; what the sinks' URL may have, such as ssl_ca=FILE
    sqlite:FILE/TABLE?id=COLUMN              also sqlite:///FILE/TABLE, as the sink names the file

Besides `id`, `time=` says when the event happened and `amount=` what it is worth. An unknown option is refused by its
name, so that a typing error never leads to another audit than the one that was meant.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from semel.audit.errors import AuditFailed, meant, near_to
from semel.audit.places import Place
from semel.audit.rows import Selector, Wanted

_ROW_OPTIONS: Final = ("id", "time", "amount")
_KAFKA: Final = "kafka."
_CATALOG: Final = "catalog."
_STORAGE: Final = "storage."
_ON_BAD_BATCH: Final = "on_bad_batch"
_TOPIC: Final = "semel"
_AS_URL: Final = "sqlite:///"
# Delta counts versions in 64 bits, and the ids of Iceberg's snapshots have as many.
_VERSION: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True)
class Address:
    """An address in its parts; `text` is as it was written, and may hold a password."""

    text: str
    parts: SplitResult
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> "Address":
        try:
            parts = urlsplit(text)
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise AuditFailed(f"{_shown(text)!r} is not an address: {error}") from None
        if "#" in text:
            # Everything after it would be left out without a word: a part of a path, a column or a password.
            raise AuditFailed(f"{_shown(text)!r} has a '#', which ends an address: write %23 instead")
        if text.startswith(_AS_URL):
            # As in the URL of a sink: three slashes before a relative path, four before an absolute one.
            parts = parts._replace(path=parts.path.removeprefix("/"))
        options = dict(pairs)
        if len(options) < len(pairs):
            raise AuditFailed(f"{_shown(text)!r} gives an option twice")
        return cls(text, parts, options)

    @property
    def name(self) -> str:
        """The address as messages show it: without options, and without a password."""
        slashes = "//" if self.host or self.parts.scheme == "postgresql" else ""
        return f"{self.parts.scheme}:{slashes}{self.host}{unquote(self.parts.path)}"

    @property
    def host(self) -> str:
        """The host and the user, without a password."""
        user, at, host = self.parts.netloc.rpartition("@")
        return f"{user.partition(':')[0]}{at}{host}"

    @property
    def path(self) -> str:
        """The path of something on this machine."""
        if self.parts.netloc:
            raise AuditFailed(
                f"{self.name}: {self.host} would be a host; write {self.parts.scheme}:/PATH, "
                f"or {self.parts.scheme}:PATH for one that begins here"
            )
        if not self.parts.path:
            raise AuditFailed(f"{_shown(self.text)!r} says no path: write {self.parts.scheme}:/PATH")
        return unquote(self.parts.path)

    def wanted(self, time: str | None = None) -> Wanted:
        if not self.options.get("id"):
            raise AuditFailed(f"{self.name} does not say what identifies a row: add ?id=...")
        chosen = {"time": time, **self.options}
        selectors = (Selector.parse(name) if (name := chosen.get(option)) else None for option in ("time", "amount"))
        return Wanted(Selector.parse(self.options["id"]), *selectors)

    def number(self, option: str) -> int | None:
        """A number of 63 bits, if the address has this option."""
        text = self.options.get(option)
        if text is not None and (_VERSION.fullmatch(text) is None or int(text) >= 1 << 63):
            raise AuditFailed(f"{self.name}: {text!r} is no {option}")
        return None if text is None else int(text)

    def below(self, prefix: str) -> dict[str, str]:
        """The options that begin so, without that."""
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}

    def refuse_options_but(self, *more: str) -> None:
        known = (*_ROW_OPTIONS, *more)
        for option in self.options:
            if option not in known:
                raise AuditFailed(f"{self.name}: option {option} is not known{meant(option, known)}")


def _shown(text: str) -> str:
    """The address as it was written, without the parts that may hold a password: the user's part, and the options."""
    _, at, host = text.rpartition("@")
    return (f"{text.partition('//')[0]}//...@{host}" if at else text).partition("?")[0]


def place(text: str, client: Mapping[str, object]) -> Place:
    """The place that an address names; a topic is read with the settings of `client`. Nothing is opened yet."""
    address = Address.parse(text)
    if address.parts.scheme == _TOPIC:
        return _topic(address, client)
    scheme, _, driver = address.parts.scheme.partition("+")
    make = _PLACES.get(scheme)
    if make is None or (driver and make is not _mysql):
        known = [f"{scheme}:" for scheme in (_TOPIC, *_PLACES)]
        near = near_to(f"{scheme}:", known) or f": such an address begins with one of {', '.join(known)}"
        raise AuditFailed(f"{_shown(text)!r} is not an address that can be audited{near}")
    return make(address)


def _topic(address: Address, client: Mapping[str, object]) -> Place:
    try:
        from semel.audit.places.topic import TIME_COLUMN, TopicPlace
        from semel.client import SettingsRefused, from_options
        from semel.client.bad_batches import OnBadBatch
        from semel.client.settings import BOOTSTRAP
    except ImportError as error:
        raise AuditFailed(f"{address.name}: {error}") from None

    settings = {name: value for name, value in address.options.items() if name.startswith(_KAFKA)}
    address.refuse_options_but(*settings, _ON_BAD_BATCH)
    wanted_on_bad_batch = address.options.get(_ON_BAD_BATCH, OnBadBatch.FAIL.value)
    if wanted_on_bad_batch not in [choice.value for choice in OnBadBatch]:
        raise AuditFailed(f"{address.name}: {_ON_BAD_BATCH} is fail or quarantine, not {wanted_on_bad_batch!r}")
    topic = unquote(address.parts.path).strip("/")
    if not address.parts.netloc or not topic or "/" in topic:
        raise AuditFailed(f"{_shown(address.text)!r} names no topic: write semel://HOST:PORT/TOPIC")
    try:
        options = {f"{_KAFKA}{name}": str(value) for name, value in client.items()} | settings
        reader = from_options({**options, f"{_KAFKA}{BOOTSTRAP}": address.parts.netloc})
    except SettingsRefused as error:
        raise AuditFailed(f"{address.name}: {error}") from None
    wanted = address.wanted(TIME_COLUMN)
    return TopicPlace(address.name, reader, topic, wanted, OnBadBatch(wanted_on_bad_batch))


def _parquet(address: Address) -> Place:
    from semel.audit.places.parquet import ParquetDirectory

    address.refuse_options_but()
    return ParquetDirectory(address.name, Path(address.path), address.wanted())


def _delta(address: Address) -> Place:
    from semel.audit.places.delta import DeltaPlace

    storage = address.below(_STORAGE)
    address.refuse_options_but("version", *(f"{_STORAGE}{name}" for name in storage))
    return DeltaPlace(address.name, address.path, storage, address.number("version"), address.wanted())


def _iceberg(address: Address) -> Place:
    from semel.audit.places.iceberg import IcebergPlace

    given = address.below(_CATALOG)
    address.refuse_options_but("catalog", "ref", "snapshot", *(f"{_CATALOG}{name}" for name in given))
    if not address.path.rpartition(".")[0]:
        raise AuditFailed(f"{_shown(address.text)!r} names no table: write iceberg:NAMESPACE.TABLE")
    ref, snapshot = address.options.get("ref"), address.number("snapshot")
    catalog = address.options.get("catalog", "default")
    return IcebergPlace(address.name, address.path, catalog, given, ref, snapshot, address.wanted())


def _sqlite(address: Address) -> Place:
    from semel.audit.places.sqlite import SQLiteTable

    address.refuse_options_but()
    file, _, table = address.path.rpartition("/")
    if not file or not table:
        raise AuditFailed(f"{_shown(address.text)!r} names no table: write sqlite:FILE/TABLE")
    return SQLiteTable(address.name, Path(file), table, address.wanted())


def _postgresql(address: Address) -> Place:
    from semel.audit.places.postgres import PostgresTable

    conninfo, table = _on_server(address, "postgresql")
    return PostgresTable(address.name, conninfo, table, address.wanted())


def _mysql(address: Address) -> Place:
    from semel.audit.places.mysql import MysqlTable

    url, table = _on_server(address, address.parts.scheme)
    return MysqlTable(address.name, url, table, address.wanted())


def _on_server(address: Address, scheme: str) -> tuple[str, str]:
    """The URL of the database, with the options that are not the audit's, and the table."""
    if not address.parts.netloc and ":" in address.parts.path.partition("@")[0] and "@" in address.parts.path:
        # With one slash only, user and password would be taken for a part of the database's name.
        raise AuditFailed(f"an address of a server has two slashes: write {scheme}://USER@HOST/DATABASE/TABLE")
    database, slash, table = unquote(address.parts.path).strip("/").rpartition("/")
    if not slash or not database or not table:
        raise AuditFailed(f"{address.name} names no table: write {scheme}://USER@HOST/DATABASE/TABLE")
    rest = {name: value for name, value in address.options.items() if name not in _ROW_OPTIONS}
    return f"{scheme}://{address.parts.netloc}/{quote(database)}?{urlencode(rest, quote_via=quote)}", table


_PLACES: Final[dict[str, Callable[[Address], Place]]] = {
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlite": _sqlite,
}
