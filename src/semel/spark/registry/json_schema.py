"""JSON Schema: its types as Spark's, and Spark's own functions that read and write the text.

What a schema leaves open (no type, several types, an object without properties) becomes a column with the text of its
JSON. Checked are types, required properties and lists of values; nothing else that a schema may demand, such as a
pattern: the producer's serializer does that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as spark_types

from semel.spark.registry.client import Registered, RegistryRefused, about, below
from semel.spark.registry.frames import FRAME_BYTES, RAW, REASON, frame, unframed, unknown
from semel.spark.tables.columns import JSON_OPTIONS
from semel.spark.tables.file_rows import column_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT: Final = "_semel_corrupt"
_ID: Final = "_semel_id"
_STRICT: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_DEPTH_MAX: Final = 64
_PLAIN: Final[dict[str, spark_types.DataType]] = {
    "boolean": spark_types.BooleanType(),
    "integer": spark_types.LongType(),
    "number": spark_types.DoubleType(),
    "string": spark_types.StringType(),
}
_FORMATS: Final[dict[str, spark_types.DataType]] = {
    "date": spark_types.DateType(),
    "date-time": spark_types.TimestampType(),
}
# What may be written where the schema has one of these types.
_WRITABLE: Final[dict[type[spark_types.DataType], tuple[type[spark_types.DataType], ...]]] = {
    spark_types.BooleanType: (spark_types.BooleanType,),
    spark_types.LongType: (spark_types.IntegralType,),
    spark_types.DoubleType: (spark_types.NumericType,),
    spark_types.StringType: (spark_types.StringType,),
    spark_types.DateType: (spark_types.DateType,),
    spark_types.TimestampType: (spark_types.TimestampType,),
}


@dataclass(frozen=True)
class Part:
    """A part of a schema."""

    type: spark_types.DataType
    has_null: bool = False
    is_open: bool = False
    fields: Mapping[str, Part] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    item: Part | None = None
    values: tuple[str, ...] = ()


OPEN: Final = Part(spark_types.StringType(), has_null=True, is_open=True)


def kind_of_text(text: str) -> str:
    """Whether a text is a schema of Avro or of JSON Schema: only Avro's have a name or fields."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise RegistryRefused(f"schema=... is no JSON: {error}") from None
    is_json = isinstance(schema, dict) and not {"name", "items", "values", "logicalType"} & {*schema}
    return "JSON" if "$schema" in schema or (is_json and schema.get("type") in (None, "object")) else "AVRO"


def parsed(schema: Registered) -> Part:
    *others, own = (json.loads(text) for text in schema.texts)
    part = _Parser(own, dict(zip(schema.names, others, strict=False))).part(own, 0)
    if not part.fields:
        raise RegistryRefused("the schema is not of an object with properties, so it gives no columns")
    return part


class _Parser:
    def __init__(self, own: Any, others: Mapping[str, Any]) -> None:
        self._own = own
        self._others = others

    def part(self, schema: Any, depth: int) -> Part:
        if not isinstance(schema, dict) or depth > _DEPTH_MAX:
            # `true`, which allows everything, or a schema that holds itself.
            return OPEN
        if "$ref" in schema:
            return self.part(self._referred(str(schema["$ref"])), depth + 1)
        for name in ("oneOf", "anyOf"):
            if name in schema:
                others = [one for one in schema[name] if one != {"type": "null"}]
                part = self.part(others[0], depth + 1) if len(others) == 1 else OPEN
                return replace(part, has_null=True) if len(others) < len(schema[name]) else part
        kinds = schema.get("type")
        if isinstance(kinds, list):
            others = [kind for kind in kinds if kind != "null"]
            part = self.part({**schema, "type": others[0]}, depth) if len(others) == 1 else OPEN
            return replace(part, has_null=True) if "null" in kinds else part
        return self._of_kind(schema, kinds, depth)

    def _of_kind(self, schema: Mapping[str, Any], kind: object, depth: int) -> Part:
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, depth)
        if kind == "array" and "items" in schema:
            item = self.part(schema["items"], depth + 1)
            return Part(spark_types.ArrayType(item.type), item=item)
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        if kind is None and values and all(isinstance(value, str) for value in values):
            kind = "string"
        if kind not in _PLAIN:
            return OPEN
        plain = _FORMATS.get(schema.get("format", ""), _PLAIN["string"]) if kind == "string" else _PLAIN[str(kind)]
        return Part(plain, values=tuple(values) if kind == "string" else ())

    def _object(self, schema: Mapping[str, Any], depth: int) -> Part:
        if "properties" in schema:
            fields = {name: self.part(one, depth + 1) for name, one in schema["properties"].items()}
            required = frozenset(schema.get("required", ())) & {*fields}
            kind = spark_types.StructType([spark_types.StructField(name, one.type) for name, one in fields.items()])
            return Part(kind, fields=fields, required=required) if fields else OPEN
        if isinstance(values := schema.get("additionalProperties"), dict):
            item = self.part(values, depth + 1)
            return Part(spark_types.MapType(spark_types.StringType(), item.type), item=item)
        return OPEN

    def _referred(self, reference: str) -> Any:
        name, _, path = reference.partition("#")
        if name and name not in self._others:
            raise RegistryRefused(f"the schema refers to {reference}, and the registry does not say what that is")
        found = self._others[name] if name else self._own
        for step in path.strip("/").split("/") if path.strip("/") else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~"), True)
        return found


def compare(writer: Part, reader: Part, without: Collection[str], path: str = "") -> None:
    """Raises if the reader's column would not hold the values of the writer."""
    if reader.is_open:
        return
    if writer.fields and reader.fields:
        for name, one in writer.fields.items():
            inner = below(path, name)
            if name in reader.fields:
                compare(one, reader.fields[name], without, inner)
            elif inner not in without:
                raise RegistryRefused(
                    f"the schema for the reader has no property {inner}, so its values would be lost: take a schema "
                    f"that has it (schema=...), or leave it out on purpose (without=[{inner!r}])"
                )
    elif writer.item and reader.item and type(writer.type) is type(reader.type):
        compare(writer.item, reader.item, without, f"{path}[]")
    elif writer.type != reader.type:
        raise RegistryRefused(
            f"{path} is {writer.type.simpleString()}, and {reader.type.simpleString()} in the schema for the reader, "
            "which may not hold all its values: take another schema (schema=...), or write these records to another "
            "topic"
        )


def read(
    df: DataFrame,
    column: str,
    subject: str,
    versions: Sequence[Registered],
    reader: Registered,
    without: tuple[str, ...],
) -> DataFrame:
    """The rows with the column read, why it could not be read, and the bytes of those."""
    from pyspark.sql import functions as f

    wanted = parsed(reader)
    for version in versions:
        with about(subject, version):
            compare(parsed(version), wanted, without)
    raw, schema_id = f.col(RAW), f.col(_ID)
    text = f.expr(f"substring(`{RAW}`, {FRAME_BYTES + 1})").cast("string")
    assert isinstance(wanted.type, spark_types.StructType)
    kind = spark_types.StructType([*wanted.type.fields, spark_types.StructField(_CORRUPT, spark_types.StringType())])
    is_framed = (f.length(raw) >= FRAME_BYTES) & (f.substring(raw, 1, 1) == f.lit(b"\0"))
    id_of = f.conv(f.hex(f.substring(raw, 2, FRAME_BYTES - 1)), 16, 10).cast("long")
    rows = df.withColumn(RAW, column_of(column)).withColumn(_ID, f.when(is_framed, id_of))
    rows = rows.withColumn(column, f.from_json(text, kind, _STRICT))
    value = column_of(column)
    before, after = unknown(subject)
    no_fit = f.concat(f.lit("the text after schema id "), schema_id, f.lit(f" is no {subject}"))
    is_broken = value.isNull() | value.getField(_CORRUPT).isNotNull() | ~f.rtrim(text).endswith("}")
    faults = [f.when(at, f.concat(no_fit, f.lit(f": {said}"))) for said, at in _faults(wanted, wanted.type, value, "")]
    reason = f.coalesce(
        f.when(schema_id.isNull(), f.lit(unframed())),
        f.when(~schema_id.isin([one.id for one in versions]), f.concat(f.lit(before), schema_id, f.lit(after))),
        f.when(is_broken, no_fit),
        *faults,
    )
    rows = rows.withColumn(REASON, f.when(raw.isNotNull(), reason))
    is_good = f.col(REASON).isNull()
    return rows.select(
        *(
            f.when(is_good, value.dropFields(_CORRUPT)).alias(column) if name == column else column_of(name)
            for name in df.columns
        ),
        f.col(REASON),
        f.when(~is_good, raw).alias(RAW),
    )


def _faults(part: Part, kind: spark_types.DataType, value: Column, path: str) -> Iterator[tuple[str, Column]]:
    """What the schema does not allow, as far as Spark takes it: in words, and when it is so. Within lists nothing is
    looked for."""
    from pyspark.sql import functions as f

    for given in kind.fields if isinstance(kind, spark_types.StructType) else ():
        name, one = given.name, part.fields[given.name]
        inner, at = below(path, name), value.getField(name)
        if name in part.required and not one.has_null:
            yield f"{inner} is missing", value.isNotNull() & at.isNull()
        if isinstance(given.dataType, spark_types.FractionalType):
            yield f"{inner} is no finite number", f.isnan(at) | (f.abs(at) == float("inf"))
        if one.values:
            yield f"{inner} is none of {', '.join(one.values)}", ~at.isin(list(one.values))
        yield from _faults(one, given.dataType, at, inner)


def write(df: DataFrame, column: str, schema: Registered) -> DataFrame:
    from pyspark.sql import functions as f

    part = parsed(schema)
    _check(part, df.schema[column].dataType, "")
    value = column_of(column)
    text = _object_text(part, df.schema[column].dataType, value)
    faults = [
        f.when(at, f.lit(f"{said}, which the schema does not allow"))
        for said, at in _faults(part, df.schema[column].dataType, value, "")
    ]
    said = f.coalesce(*faults, f.lit(None).cast("string"))
    framed = f.concat(f.lit(frame(schema.id)), f.encode(text, "UTF-8"))
    checked = f.when(said.isNotNull(), f.raise_error(said).cast("binary")).otherwise(framed)
    return df.withColumn(column, f.when(value.isNotNull(), checked))


def _check(part: Part, given: spark_types.DataType, path: str) -> None:
    what = path or "the column"
    if part.is_open:
        raise RegistryRefused(
            f"the schema leaves open what {what} is: give it a type there, or leave it out of the rows"
        )
    if part.fields and isinstance(given, spark_types.StructType):
        for one in given.fields:
            inner = below(path, one.name)
            if one.name not in part.fields:
                raise RegistryRefused(f"the schema has no property {inner}: leave it out, or take another schema")
            _check(part.fields[one.name], one.dataType, inner)
        for name in sorted(part.required - {*given.fieldNames()}):
            raise RegistryRefused(f"the schema requires {below(path, name)}, and the rows have no such")
    elif part.item and isinstance(given, spark_types.ArrayType | spark_types.MapType):
        item = given.elementType if isinstance(given, spark_types.ArrayType) else given.valueType
        if type(given) is not type(part.type):
            raise RegistryRefused(f"{what} is {given.simpleString()}, and {part.type.simpleString()} in the schema")
        _check(part.item, item, f"{path}[]")
    elif not isinstance(given, _WRITABLE.get(type(part.type), ())):
        raise RegistryRefused(
            f"{what} is {given.simpleString()}, and {part.type.simpleString()} in the schema: cast it"
        )


def _object_text(part: Part, kind: spark_types.DataType, value: Column) -> Column:
    """An object with the properties that are not null, and with those that have to be there although they are null."""
    from pyspark.sql import functions as f

    assert isinstance(kind, spark_types.StructType)
    pairs = []
    for one in kind.fields:
        at, inner = value.getField(one.name), part.fields[one.name]
        name = json.dumps(one.name) + ":"
        if isinstance(one.dataType, spark_types.StructType):
            pair = f.concat(f.lit(name), _object_text(inner, one.dataType, at))
        else:
            whole = f.to_json(f.struct(at.alias(one.name)), JSON_OPTIONS | {"ignoreNullFields": "true"})
            pair = f.substring(whole, f.lit(2), f.length(whole) - 2)
        nothing = f"{name}null" if one.name in part.required else None
        pairs.append(f.when(at.isNotNull(), pair).otherwise(f.lit(nothing)))
    return f.concat(f.lit("{"), f.concat_ws(",", *pairs), f.lit("}"))
