"""The SQL of a sink, the same for each database where it can be: how each mode moves staged rows into a table.

Pure text: nothing here knows a connection. `rows` is always the staged rows of the batch, as a subquery in brackets.
Every statement gives the same table for any order of the rows, because Spark promises none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["append", "upsert", "merge"]
MODES = ("append", "upsert", "merge")

# Stands for the staged rows in a merge statement that the user wrote.
ROWS = "{rows}"

# How many characters of a value a message shows, and of what a database says of it.
SHOWN_MAX = 40
REASON_CHARACTERS_MAX = 1_000

# Columns that the sink adds while it writes. The rows must not have columns of these names.
TASK_COLUMN = "semel_task"
RANK_COLUMN = "semel_rank"
PLACE_COLUMN = "semel_place"
ROW_COLUMN = "semel_row"

# How a column of the batch and the same column of the table are combined. The aggregate of that name first combines the
# rows of one key in a batch, then the result with the stored row: neither order nor batch boundaries change the result.
# A sum uses the function and not `+`: beyond the greatest whole number, SQLite's `+` turns to floating point.
COMBINED = {
    "sum": "(SELECT sum(part) FROM (SELECT target.{0} AS part UNION ALL SELECT excluded.{0}) AS parts)",
    "min": "CASE WHEN excluded.{0} < target.{0} THEN excluded.{0} ELSE target.{0} END",
    "max": "CASE WHEN excluded.{0} > target.{0} THEN excluded.{0} ELSE target.{0} END",
}


# How many characters of a long text decide its place in an order of MySQL, before its hash does.
SORTED_CHARACTERS_MAX = 255

# A value that no row can have, of any type: a statement that needs it fails.
_TWO_ROWS = "(SELECT NULL UNION ALL SELECT NULL)"


@dataclass(frozen=True)
class Write:
    """How the rows of a batch are written."""

    mode: Mode = "append"
    key: tuple[str, ...] = ()
    version: str | None = None
    merge: Mapping[str, str] | str | None = None


def checked(mode: str, key: Sequence[str] | str, version: str | None, merge: Mapping[str, str] | str | None) -> Write:
    """The arguments of a sink as a `Write`; raises if some of them do not go together."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is none of {', '.join(MODES)}")
    if mode == "append" and keys:
        raise ValueError('key=... says which row to replace, and mode="append" replaces none: use mode="upsert"')
    if mode == "upsert" and not keys:
        raise ValueError('mode="upsert" needs key=[...], the columns that tell one row from another')
    if version is not None and mode != "upsert":
        raise ValueError(f'version=... decides between two rows of one key in mode="upsert", and not in mode={mode!r}')
    if version in keys:
        raise ValueError(f"version={version!r} is part of the key: then no two rows of one key differ in it")
    if (merge is not None) != (mode == "merge"):
        raise ValueError('mode="merge" and merge=... belong together')
    if isinstance(merge, str) and (ROWS not in merge or keys):
        raise ValueError(f"a merge statement names its rows as {ROWS} and its own key, so key=... has no use")
    if isinstance(merge, Mapping):
        check_combined(keys, merge)
    return Write(mode, keys, version, merge)  # type: ignore[arg-type]


def check_combined(key: Sequence[str], merge: Mapping[str, str]) -> None:
    unknown = sorted(set(merge.values()) - set(COMBINED))
    if unknown:
        raise ValueError(f"merge={{...: {unknown[0]!r}}} is none of {', '.join(COMBINED)}")
    if not key or not merge:
        raise ValueError('mode="merge" with columns needs key=[...] and a column to combine')
    both = sorted(set(key) & set(merge))
    if both:
        raise ValueError(f"column {both[0]!r} is in key and in merge")


def check_columns(write: Write, columns: Sequence[str]) -> None:
    """Checks that the rows have the columns that the arguments name, and that a merge says how to combine each
    column."""
    for name in columns:
        if name.lower() in (TASK_COLUMN, RANK_COLUMN, PLACE_COLUMN, ROW_COLUMN):
            raise ValueError(f"column {name!r} has a name that the sink needs for itself: rename it")
    named = named_columns(write)
    for name, argument in named.items():
        if name not in columns:
            raise ValueError(
                f"{argument} names {name!r}, and the rows have no such column: they have {', '.join(columns)}"
            )
    left = [name for name in columns if name not in named]
    if left and isinstance(write.merge, Mapping):
        raise ValueError(f"column {left[0]!r} is neither in key nor in merge: drop it, or say how to combine it")


def check_table(write: Write, table: str, existing: Sequence[str]) -> None:
    """The same for a table that exists, before there are rows."""
    for name, argument in named_columns(write).items():
        if existing and name not in existing:
            raise ValueError(
                f"{argument} names {name!r}, and table {table} has no such column: it has {', '.join(existing)}"
            )


def check_generated(write: Write, table: str, columns: Iterable[str], generated: Collection[str]) -> None:
    """Refuses a value for a column that the database computes itself."""
    for name in [*named_columns(write), *columns]:
        if name in generated:
            raise ValueError(
                f"column {name!r} of {table} is generated: the database computes it, and takes no value for it. "
                "Nothing was written. Leave it out (columns=...)"
            )


def no_index(write: Write, table: str) -> ValueError:
    return ValueError(
        f"table {table} needs a primary key or a unique index on exactly ({', '.join(write.key)}) for "
        f"mode={write.mode!r}"
    )


def find_index(write: Write, table: str) -> str:
    """A statement to be explained, which fails if the table has no unique index on exactly the key."""
    key = listed(write.key)
    return (
        f"EXPLAIN INSERT INTO {qualified(table)} ({key}) SELECT {key} FROM {qualified(table)} WHERE false "
        f"ON CONFLICT ({key}) DO NOTHING"
    )


def named_columns(write: Write) -> dict[str, str]:
    """The columns that the arguments name, and the argument that names each."""
    named = dict.fromkeys(write.merge, "merge=...") if isinstance(write.merge, Mapping) else {}
    if write.version:
        named[write.version] = "version=..."
    return dict.fromkeys(write.key, "key=...") | named


def added_columns(table: str, types: Mapping[str, str], existing: Sequence[str], quote: str = '"') -> list[str]:
    """The statements that add the columns which only the rows have. A column that only the table has gets its default
    there, or null."""
    new = [name for name in types if name not in existing]
    return [f"ALTER TABLE {qualified(table, quote)} ADD COLUMN {quoted(name, quote)} {types[name]}" for name in new]


def check_new_columns(table: str, types: Mapping[str, str], existing: Sequence[str], quote: str = '"') -> None:
    """Refuses rows that have a column more than the table."""
    new = [name for name in types if name not in existing]
    if new:
        adding = "; ".join(added_columns(table, types, existing, quote))
        raise ValueError(
            f"table {table} has no column {new[0]!r}: it has {', '.join(existing)}. Nothing was written. Add it "
            f"(add_columns=True, or {adding}), or leave it out (columns=...)"
        )


def literal(value: object) -> str:
    """A text or a number in a statement."""
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def quoted(name: str, quote: str = '"') -> str:
    return quote + name.replace(quote, quote * 2) + quote


def qualified(table: str, quote: str = '"') -> str:
    """`schema.table` or `table`."""
    return ".".join(quoted(part, quote) for part in table.split(".", 1))


def listed(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(prefix + quoted(name) for name in names)


def create_table(table: str, types: Mapping[str, str], key: Sequence[str], kind: str = "TABLE") -> str:
    lines = [f"{quoted(name)} {type_}{' NOT NULL' if name in key else ''}" for name, type_ in types.items()]
    if key:
        lines.append(f"PRIMARY KEY ({listed(key)})")
    return f"CREATE {kind} IF NOT EXISTS {qualified(table)} ({', '.join(lines)})"


def write_statement(write: Write, table: str, columns: Sequence[str], rows: str) -> str:
    if isinstance(write.merge, str):
        return write.merge.replace(ROWS, rows)
    if write.merge is not None:
        return combine(write.key, write.merge, table, rows)
    if write.mode == "upsert":
        return upsert(write, table, columns, rows)
    return f"INSERT INTO {qualified(table)} ({listed(columns)}) SELECT {listed(columns)} FROM {rows} AS staged"


def upsert(write: Write, table: str, columns: Sequence[str], rows: str) -> str:
    """With a version column, the row with the greatest version stays, within the batch and compared with the table; of
    two rows with the same key and version in one batch, the one that is greater in its other columns, from left to
    right.
    """
    others = [name for name in columns if name not in write.key]
    changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    condition = f" WHERE {not_older(write, 'excluded')}" if write.version else ""
    return (
        f"INSERT INTO {qualified(table)} AS target ({listed(columns)}) "
        f"SELECT {listed(columns)} FROM {newest(write, columns, rows)} AS semel_newest WHERE true "
        f"ON CONFLICT ({listed(write.key)}) DO {f'UPDATE SET {changes}{condition}' if others else 'NOTHING'}"
    )


def upsert_by_merge(write: Write, table: str, columns: Sequence[str], rows: str) -> str:
    """The same as `upsert`, in half the time if most rows are new. It looks for the keys first, so it fails if a key
    comes twice in the batch, or if another writer inserts it meanwhile."""
    others = [name for name in columns if name not in write.key]
    same_key = " AND ".join(f"target.{quoted(name)} = semel_newest.{quoted(name)}" for name in write.key)
    changes = ", ".join(f"{quoted(name)} = semel_newest.{quoted(name)}" for name in others)
    condition = f" AND ({not_older(write, 'semel_newest')})" if write.version else ""
    return (
        f"MERGE INTO {qualified(table)} AS target USING {newest(write, columns, rows)} AS semel_newest ON {same_key} "
        f"{f'WHEN MATCHED{condition} THEN UPDATE SET {changes} ' if others else ''}"
        f"WHEN NOT MATCHED THEN INSERT ({listed(columns)}) VALUES ({listed(columns, 'semel_newest.')})"
    )


def by_duplicate_key(
    write: Write,
    table: str,
    columns: Sequence[str],
    rows: str,
    is_guarded: bool,
    stored: Mapping[str, str],
    long: Collection[str],
) -> str:
    """`upsert` and `combine` for MySQL, whose statement updates a row that is like the new one in any unique index. So
    where the table has more of them, it is guarded: for a row with another key it fails. Null for the key would not do,
    because a column that counts takes it for zero, and another one for the time. `stored` spells columns of the table
    as the rows have them. Assignments happen from left to right, and each sees those before it: the version is the
    last one.
    """
    old = {**{name: f"{qualified(table)}.{quoted(name)}" for name in columns}, **stored}
    new = {name: f"semel_newest.{quoted(name)}" for name in columns}
    others = [name for name in columns if name not in write.key]
    if isinstance(write.merge, Mapping):
        aggregates = ", ".join(f"{how}({quoted(name)}) AS {quoted(name)}" for name, how in write.merge.items())
        source = f"(SELECT {listed(write.key)}, {aggregates} FROM {rows} AS staged GROUP BY {listed(write.key)})"
        changes = {
            name: f"CASE WHEN {new[name]} IS NULL THEN {old[name]} WHEN {old[name]} IS NULL THEN {new[name]} "
            f"ELSE {_both(how, old[name], new[name])} END"
            for name, how in write.merge.items()
        }
    else:
        source = newest(write, columns, rows, "", long)
        changes = {name: new[name] for name in others}
    if write.version is not None:
        version = write.version
        later = f"{old[version]} IS NULL OR {new[version]} >= {old[version]}"
        ordered = [*(name for name in others if name != version), version]
        changes = {name: f"IF({later}, {new[name]}, {old[name]})" for name in ordered}
    if is_guarded:
        is_same = " AND ".join(f"{old[name]} = {new[name]}" for name in write.key)
        changes = {write.key[0]: f"IF({is_same}, {old[write.key[0]]}, {_TWO_ROWS})", **changes}
    elif not changes:
        changes = {write.key[0]: old[write.key[0]]}
    assigned = ", ".join(f"{quoted(name)} = {value}" for name, value in changes.items())
    return (
        f"INSERT INTO {qualified(table)} ({listed(columns)}) SELECT {listed(columns)} FROM {source} AS semel_newest "
        f"ON DUPLICATE KEY UPDATE {assigned}"
    )


def _both(how: str, old: str, new: str) -> str:
    return f"{old} + {new}" if how == "sum" else f"{'LEAST' if how == 'min' else 'GREATEST'}({old}, {new})"


def newest(
    write: Write, columns: Sequence[str], rows: str, nulls: str = " NULLS LAST", long: Collection[str] = ()
) -> str:
    """The rows that may go into the table: with a version column, one for each key."""
    if write.version is None:
        return rows
    order = ", ".join(f"{term} DESC{nulls}" for term in by_age(write, columns, long))
    rank = f"row_number() OVER (PARTITION BY {listed(write.key)} ORDER BY {order}) AS {RANK_COLUMN}"
    ranked = f"(SELECT {listed(columns)}, {rank} FROM {rows} AS staged)"
    return f"(SELECT {listed(columns)} FROM {ranked} AS ranked WHERE {RANK_COLUMN} = 1)"


def by_age(write: Write, columns: Sequence[str], long: Collection[str] = ()) -> list[str]:
    """What decides which of two rows of one key is the later one, from left to right. MySQL sorts only the beginnings
    of `long` columns, so a hash decides between two that begin alike."""
    others = [quoted(name) for name in columns if name not in (*write.key, write.version)]
    cut = [quoted(name) for name in long]
    begins = [f"left({column}, {SORTED_CHARACTERS_MAX})" if column in cut else column for column in others]
    is_longer = "IF(char_length({0}) > " + str(SORTED_CHARACTERS_MAX) + ", sha2({0}, 256), NULL)"
    hashes = [is_longer.format(column) for column in others if column in cut]
    return [quoted(str(write.version)), *begins, *hashes]


def not_older(write: Write, row: str) -> str:
    version = quoted(str(write.version))
    return f"target.{version} IS NULL OR {row}.{version} >= target.{version}"


def combine(key: Sequence[str], merge: Mapping[str, str], table: str, rows: str) -> str:
    """A null is ignored: it changes no sum, and is neither the least nor the greatest."""
    aggregates = ", ".join(f"{how}({quoted(name)}) AS {quoted(name)}" for name, how in merge.items())
    changes = ", ".join(
        f"{column} = CASE WHEN excluded.{column} IS NULL THEN target.{column} "
        f"WHEN target.{column} IS NULL THEN excluded.{column} ELSE {COMBINED[how].format(column)} END"
        for column, how in ((quoted(name), how) for name, how in merge.items())
    )
    return (
        f"INSERT INTO {qualified(table)} AS target ({listed([*key, *merge])}) "
        f"SELECT {listed(key)}, {aggregates} FROM {rows} AS staged WHERE true GROUP BY {listed(key)} "
        f"ON CONFLICT ({listed(key)}) DO UPDATE SET {changes}"
    )


def count_statement(write: Write, rows: str) -> str:
    """Counts the rows, and the rows whose key has a null."""
    return f"SELECT count(*), count(CASE WHEN {has_null(write)} THEN 1 END) FROM {rows} AS staged"


def keyless_statement(write: Write, rows: str) -> str:
    """One of the rows whose key has a null."""
    return f"SELECT * FROM {rows} AS staged WHERE {has_null(write)} LIMIT 1"


def has_null(write: Write) -> str:
    return " OR ".join(f"{quoted(name)} IS NULL" for name in write.key) or "false"


def keyless(write: Write, count: int, row: Mapping[str, object]) -> ValueError:
    """In SQL no null equals another one, so a row with a null in its key would replace none and be added again and
    again."""
    values = ", ".join(f"{name}={'NULL' if value is None else shown(value)}" for name, value in row.items())
    condition = " AND ".join(f"{name} IS NOT NULL" for name in write.key)
    return ValueError(
        f"{count} {'row has' if count == 1 else 'rows have'} null in the key ({', '.join(write.key)}), such as "
        f"({values}). Nothing was written. Give the key a value, leave such rows out (where={condition!r}), or write "
        "them into a table beside it (on_bad_row='quarantine')"
    )


def shown(value: object, characters_max: int = SHOWN_MAX) -> str:
    """A value as a message shows it."""
    text = str(value)
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."


def one_line(error: object) -> str:
    return shown(" ".join(str(error).split()), REASON_CHARACTERS_MAX)


def doubled_keys(write: Write, rows: str) -> str | None:
    """Counts the keys that a batch has twice, if nothing says which of two rows is the later one."""
    if write.mode != "upsert" or write.version is not None:
        return None
    key = listed(write.key)
    return f"SELECT count(*) FROM (SELECT {key} FROM {rows} AS staged GROUP BY {key} HAVING count(*) > 1) AS doubled"
