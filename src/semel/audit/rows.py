"""Rows in the one form that an audit compares, from any place: the bytes of an id, a time in milliseconds, an amount.

An id is its text: 17 in a column of integers, the JSON number 17 and the bytes `17` in a record's key are one id, and a
UUID is its 36 lower-case characters. Bytes stay as they are. Types whose values have more than one text, such as
floating-point numbers and times, are refused as ids. A value that is no time or no amount becomes null, and counts as
unreadable: it must never end an audit. Nothing here may guess: two rows have the same id if, and only if, these bytes
are the same.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semel.audit.errors import AuditFailed

# Amounts are compared and summed as decimals with nine digits after the point; one with more is unreadable.
AMOUNT_TYPE: Final = pa.decimal128(38, 9)
_SUM_TYPE: Final = pa.decimal256(76, 9)
TIME_TYPE: Final = pa.int64()
ID_TYPE: Final = pa.binary()

_JSON_MARK: Final = "$"
# Far more than the 38 digits that an amount can have.
_AMOUNT_CHARACTERS_MAX: Final = 200


class Rows(NamedTuple):
    """Some rows as they are compared: ids that are not null, and times and amounts where they were asked for.

    `unreadable` says for each row whether its time or amount could not be read; it is None if all could.
    """

    ids: Any
    times_ms: Any | None = None
    amounts: Any | None = None
    unreadable: Any | None = None

    @property
    def id_bytes(self) -> int:
        return int(pc.sum(pc.binary_length(self.ids)).as_py() or 0)

    @property
    def amount(self) -> Decimal:
        """The sum of the amounts, in a wider type: in their own type Arrow would let it overflow silently."""
        return Decimal(0) if self.amounts is None else pc.sum(self.amounts.cast(_SUM_TYPE)).as_py() or Decimal(0)


@dataclass(frozen=True, slots=True)
class Selector:
    """Where a value is in a row: a column, and a path into it if the column holds JSON."""

    column: str
    path: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """`event_id`, or `value.$.payment.id` for what is in the JSON of column `value`."""
        column, mark, path = text.partition(f".{_JSON_MARK}.")
        names = tuple(path.split(".")) if mark else ()
        if not column or (mark and not all(names)):
            raise AuditFailed(f"{text!r} names neither a column nor a field: write COLUMN, or COLUMN.$.FIELD for JSON")
        return cls(column, names)

    def __str__(self) -> str:
        return ".".join([self.column, _JSON_MARK, *self.path]) if self.path else self.column


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of each row: its id, and its time and amount if they are compared."""

    id: Selector
    time: Selector | None = None
    amount: Selector | None = None

    @property
    def columns(self) -> list[str]:
        """Each column once, in a fixed order."""
        selectors = (self.id, self.time, self.amount)
        return list(dict.fromkeys(selector.column for selector in selectors if selector is not None))

    def rows_of(self, columns: dict[str, Any]) -> Rows:
        """The rows of Arrow arrays, one for each column; the ids may still hold nulls."""
        times = amounts = unreadable = None
        if self.time is not None:
            times, unreadable = times_of(_values(columns, self.time, _json_time), self.time)
        if self.amount is not None:
            amounts, unreadable_too = amounts_of(_values(columns, self.amount, _json_amount), self.amount)
            unreadable = unreadable_too if unreadable is None else _either(unreadable, unreadable_too)
        return Rows(ids_of(_values(columns, self.id, _json_id), self.id), times, amounts, unreadable)


@dataclass(frozen=True, slots=True)
class Span:
    """The times of the events that are compared: from `since_ms` on, and before `before_ms`."""

    since_ms: int | None = None
    before_ms: int | None = None

    def within(self, rows: Rows) -> Rows:
        """A row without a time is only in the span of all times; a row whose time cannot be read may be in any span."""
        if rows.times_ms is None or (self.since_ms is None and self.before_ms is None):
            return rows
        mask = pc.is_valid(rows.times_ms)
        if self.since_ms is not None:
            mask = pc.and_(mask, pc.greater_equal(rows.times_ms, self.since_ms))
        if self.before_ms is not None:
            mask = pc.and_(mask, pc.less(rows.times_ms, self.before_ms))
        return filtered(rows, _either(pc.fill_null(mask, False), rows.unreadable))


def filtered(rows: Rows, mask: Any) -> Rows:
    return Rows(*(None if column is None else column.filter(mask) for column in rows))


def ids_of(values: Any, name: object) -> Any:
    """The bytes of each id; null where there is none."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray) and kind.extension_name == "arrow.uuid":
        texts = [None if value is None else str(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string()).cast(ID_TYPE)
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return values.cast(pa.string()).cast(ID_TYPE)
    if _is_text(kind) or _is_bytes(kind):
        return values.cast(ID_TYPE)
    if pa.types.is_null(kind):
        return values.cast(ID_TYPE)
    raise AuditFailed(f"{name} is of type {kind}: an id is text, bytes, a whole number or a UUID")


# Values, and for each whether it is null because it could not be read; None if all could.
Readable = tuple[Any, Any | None]


def times_of(values: Any, name: object) -> Readable:
    """Milliseconds since 1970. A whole number is taken as that, text as ISO 8601, and a time without a zone as UTC."""
    kind = values.type
    if _is_text(kind) or _is_bytes(kind):
        return _read(values, lambda part: _times_in_text(part.cast(pa.string())), TIME_TYPE, name)
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return _read(values, lambda part: part.cast(TIME_TYPE), TIME_TYPE, name)
    if pa.types.is_date(kind):
        return _read(values, lambda part: part.cast(pa.timestamp("ms")).cast(TIME_TYPE), TIME_TYPE, name)
    if pa.types.is_timestamp(kind):
        return _read(values, lambda part: _floored(part.cast(TIME_TYPE), _UNITS_PER_MS[kind.unit]), TIME_TYPE, name)
    raise AuditFailed(f"{name} is of type {kind}: a time is a timestamp, ISO 8601 or milliseconds since 1970")


def amounts_of(values: Any, name: object) -> Readable:
    """Decimals with nine digits after the point, exactly; a floating-point number counts as its shortest text."""
    kind = values.type
    if pa.types.is_floating(kind) or _is_bytes(kind):
        return _read(values, lambda part: part.cast(pa.string()).cast(AMOUNT_TYPE), AMOUNT_TYPE, name)
    if _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return _read(values, lambda part: part.cast(AMOUNT_TYPE), AMOUNT_TYPE, name)
    raise AuditFailed(f"{name} is of type {kind}: an amount is a number")


def _read(values: Any, convert: Callable[[Any], Any], kind: Any, name: object) -> Readable:
    """Convert all values at once, which nearly always works; otherwise half by half, down to the values that fail."""
    try:
        return convert(values), None
    except pa.ArrowNotImplementedError:
        raise AuditFailed(f"{name} is of type {values.type}, which cannot be read as {kind}") from None
    except pa.ArrowInvalid:
        pass
    if len(values) == 1:
        return pa.nulls(1, kind), pa.array([True])
    middle = len(values) // 2
    halves = [_read(half, convert, kind, name) for half in (values[:middle], values[middle:])]
    masks = [pa.array(np.zeros(len(half), np.bool_)) if mask is None else mask for half, mask in halves]
    return pa.concat_arrays([half for half, _ in halves]), pa.concat_arrays(masks)


def _either(mask: Any, other: Any | None) -> Any:
    return mask if other is None else pc.or_(mask, other)


_UNITS_PER_MS: Final = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}


def _floored(units: Any, units_per_ms: int) -> Any:
    if units_per_ms == 0:
        return pc.multiply_checked(units, 1_000)
    quotient = pc.divide(units, units_per_ms)
    # Arrow rounds towards zero; for a time before 1970 that would be the next millisecond.
    is_above = pc.greater(pc.multiply(quotient, units_per_ms), units)
    return pc.subtract(quotient, is_above.cast(pa.int64()))


def _times_in_text(texts: Any) -> Any:
    """ISO 8601 with or without a zone, or milliseconds in digits."""
    for kind in (TIME_TYPE, pa.timestamp("ns", "UTC"), pa.timestamp("ns")):
        try:
            parsed = texts.cast(kind)
        except pa.ArrowInvalid as error:
            refused = error
            continue
        return parsed if kind == TIME_TYPE else _floored(parsed.cast(pa.int64()), _UNITS_PER_MS["ns"])
    raise refused


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    is_fixed = pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)
    return bool(is_fixed or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


# -- JSON ---------------------------------------------------------------------------------------------------------


# Stands for a value that is neither a time nor an amount: neither can be read from it.
_UNREADABLE: Final = "?"
# Stands for a value in a text that is no JSON: nobody knows whether it would be there.
_NO_JSON: Final = object()


def _values(columns: dict[str, Any], selector: Selector, convert: Callable[[object], str | None]) -> Any:
    """The column itself, or the values that the path finds in its JSON."""
    values = columns[selector.column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not selector.path:
        return values
    if not (_is_text(values.type) or _is_bytes(values.type)):
        raise AuditFailed(f"{selector} looks for JSON, but {selector.column} is of type {values.type}")
    leaves = [_look(value, selector.path) for value in values.to_pylist()]
    return pa.array([None if value is None else convert(value) for value in leaves], pa.string())


def unknown_field(texts: Any, path: tuple[str, ...]) -> tuple[str, set[str]] | None:
    """The first name of the path that no object in these JSON texts has, and the names that the objects have; None if
    there is no object that could have it.
    """
    inner = [_look(text, ()) for text in texts.to_pylist()]
    for name in path:
        objects = [one for one in inner if isinstance(one, dict)]
        inner = [one[name] for one in objects if name in one]
        if objects and not inner:
            return name, {key for one in objects for key in one}
    return None


def _look(value: str | bytes | None, path: tuple[str, ...]) -> object:
    """The value at the path; None if there is no such value.

    Damaged JSON may have held a time and an amount: as if it had none, a span of time would leave the row out silently.
    """
    if value is None:
        return None
    try:
        inner = json.loads(value, parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        return _NO_JSON
    for name in path:
        if isinstance(inner, dict):
            inner = inner.get(name)
        elif isinstance(inner, list) and name.isdecimal() and int(name) < len(inner):
            inner = inner[int(name)]
        else:
            return None
    return inner


def _json_id(value: object) -> str | None:
    """Anybody may send anything: for a value that cannot be an id this is None, and its row counts as one without an
    id.
    """
    return _text(value)


def _json_time(value: object) -> str:
    return _text(value) or _UNREADABLE


def _json_amount(value: object) -> str:
    text = f"{value:f}" if isinstance(value, Decimal) and _is_short(value) else _text(value)
    return _UNREADABLE if text is None or len(text) > _AMOUNT_CHARACTERS_MAX else text


def _text(value: object) -> str | None:
    """Text and whole numbers; None for other values, and for text with half a character, which cannot be encoded."""
    if isinstance(value, str):
        return value if _is_encodable(value) else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_short(number: Decimal) -> bool:
    """Whether it has few digits when written out: a large exponent alone could fill the memory with them."""
    return number.is_finite() and abs(number.adjusted()) < _AMOUNT_CHARACTERS_MAX // 2
