"""The types of the columns in semel's tables: SQLAlchemy's, with those of a database that needs others."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import BigInteger, LargeBinary, MetaData, Text
from sqlalchemy.types import TypeEngine

from semel.database.dialects import DIALECTS, Dialect


def _varied(usual: TypeEngine[Any], own: Callable[[Dialect], TypeEngine[Any] | None]) -> TypeEngine[Any]:
    for dialect in DIALECTS:
        variant = own(dialect)
        if variant is not None:
            usual = usual.with_variant(variant, *dialect.backends)
    return usual


TEXT: Final = _varied(Text(), lambda dialect: dialect.variants.get("text"))
BYTES: Final = _varied(LargeBinary(), lambda dialect: dialect.variants.get("bytes"))
INTEGER: Final = _varied(BigInteger(), lambda dialect: dialect.variants.get("integer"))
"""Of 64 bits."""
NUMBER: Final = _varied(BigInteger(), lambda dialect: dialect.variants.get("number"))
"""A number that the database gives to each new row."""


def key(bytes_max: int) -> TypeEngine[Any]:
    """A text in a key or an index, compared byte by byte, of so many bytes in UTF-8 at most."""
    return _varied(Text(), lambda dialect: dialect.key(bytes_max))


def with_options(metadata: MetaData) -> None:
    """Adds to each table what a database has to be told when it makes the table."""
    for table in metadata.tables.values():
        for dialect in DIALECTS:
            for backend in dialect.backends:
                table.kwargs.update({f"{backend}_{name}": value for name, value in dialect.table_options.items()})
