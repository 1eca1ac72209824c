"""Writes `semel/wire/kafka`, one typed module for each API, from Kafka's own definitions of its messages.

`make messages` writes the modules again from `tools/kafka_messages.json`. `make messages JAR=kafka-clients-4.3.1.jar`
first takes the definitions from that jar. Only the APIs that `semel.wire.versions` names are taken: to add one, name it
there. This tool must never change what a definition says.
"""

import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from semel.wire.message import NEVER
from semel.wire.versions import NAMES

ROOT: Final = Path(__file__).parent.parent
DEFINITIONS: Final = ROOT / "tools/kafka_messages.json"
PACKAGE: Final = ROOT / "src/semel/wire/kafka"
LINE_MAX: Final = 120

LICENCE: Final = (
    "From Apache Kafka, Copyright The Apache Software Foundation, under the Apache License, Version 2.0: "
    "http://www.apache.org/licenses/LICENSE-2.0. Without the descriptions and comments. This product includes software "
    "developed at The Apache Software Foundation (https://www.apache.org/)."
)
PYTHON_TYPES: Final = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), "int"),
    **dict.fromkeys(("uuid", "bytes", "records"), "bytes"),
    "bool": "bool",
    "float64": "float",
    "string": "str",
}
ZEROS: Final = {"int": "0", "bool": "False", "float": "0.0", "str": '""', "bytes": 'b""'}
# What may be left out when nothing was throttled and nothing failed.
LEFT_OUT: Final = ("throttle_time_ms", "error_code", "error_message")

Definition = dict[str, Any]


class Versions(NamedTuple):
    """The first version and the one after the last."""

    since: int
    until: int


def versions(text: str) -> Versions:
    """What Kafka writes as 3+, 3-5, 3 or none."""
    if text == "none":
        return Versions(NEVER, NEVER)
    first, _, last = text.removesuffix("+").partition("-")
    return Versions(int(first), NEVER if text.endswith("+") else int(last or first) + 1)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def definitions_in(jar: Path) -> Definition:
    """The definitions of all messages of the APIs that have names here, without comments."""
    wanted = {f"{name}{kind}" for name in NAMES.values() for kind in ("Request", "Response")}
    with zipfile.ZipFile(jar) as archive:
        texts = {
            Path(name).stem: archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("common/message/") and Path(name).stem in wanted
        }
    assert wanted == texts.keys(), wanted ^ texts.keys()
    version = re.sub(r".*-(\d[\d.]*\d)\.jar", r"\1", jar.name)
    messages = {name: without_words(json.loads(re.sub(r"(?m)(^|\s)//.*$", "", texts[name]))) for name in sorted(texts)}
    return {"kafka": version, "licence": LICENCE, "messages": messages}


def without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_words(one) for key, one in value.items() if key not in ("about", "entityType")}
    return [without_words(one) for one in value] if isinstance(value, list) else value


def as_text(definitions: Definition) -> str:
    """The definitions with a line for each message."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in definitions["messages"].items())
    head = "".join(f"{json.dumps(key)}: {json.dumps(definitions[key])},\n" for key in ("kafka", "licence"))
    return f'{{\n{head}"messages": {{\n{lines}\n}}\n}}\n'


class Module:
    """The text of the module of one API."""

    def __init__(self, key: int, request: Definition, response: Definition) -> None:
        self._key = key
        self._messages = (response, request)
        counts = Counter(name for message in self._messages for name in {name for name, _ in structs_of(message)})
        # Structs of the request and of the response that have the same name.
        self._twice = {name for name, count in counts.items() if count > 1}
        self._names: dict[str, str] = {}
        self._first = self._last = 0

    def text(self) -> str:
        classes = [text for message in self._messages for text in self._classes(message)]
        first, until = versions(self._messages[1]["validVersions"])
        body = "\n\n\n".join(classes)
        helpers = sorted(name for name in ("NO_ID", "Struct", "array", "field") if re.search(rf"\b{name}\b", body))
        from_message = sorted(
            ("Request", "Response", *helpers), key=lambda name: (name != "NO_ID", name.islower(), name)
        )
        sequence = ["from collections.abc import Sequence", ""] if "Sequence[" in body else []
        head = [
            f'"""{NAMES[self._key]} ({self._key}), versions {first} to {until - 1}, as `make messages` writes it."""',
            "",
            "from __future__ import annotations",
            "",
            *sequence,
            f"from semel.wire.message import {', '.join(from_message)}",
        ]
        return "\n".join(head) + f"\n\n\n{body}\n"

    def _classes(self, message: Definition) -> Iterator[str]:
        """A struct comes before those that have it."""
        kind = "Request" if message["type"] == "request" else "Response"
        self._names = {name: kind + name if name in self._twice else name for name, _ in structs_of(message)}
        self._first, until = versions(message["validVersions"])
        self._last = until - 1
        done = set()
        for name, fields in structs_of(message):
            if name not in done:
                done.add(name)
                # The versions of a struct are those of its fields.
                ranges = [versions(one["versions"]) for one in fields] or [Versions(0, NEVER)]
                there = Versions(max(self._first, min(ranges).since), min(until, max(one.until for one in ranges)))
                yield self._class(self._names[name], "Struct", (), fields, there)
        base = "Response" if kind == "Response" else f"Request[{self._messages[0]['name']}]"
        yield self._class(
            message["name"], base, (f"    KEY = {self._key}",), message["fields"], Versions(self._first, until)
        )

    def _class(self, name: str, base: str, lines: Iterable[str], fields: list[Definition], there: Versions) -> str:
        lines = [f"class {name}({base}):", *lines, *(self._field(one, there) for one in fields)]
        return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])

    def _field(self, one: Definition, struct: Versions) -> str:
        name, kind = snake(one["name"]), one["type"]
        is_array, kind = kind.startswith("[]"), kind.removeprefix("[]")
        there, nullable = versions(one["versions"]), versions(one.get("nullableVersions", "none"))
        is_struct = kind not in PYTHON_TYPES
        type_name = self._names[kind] if is_struct else PYTHON_TYPES[kind]
        tag = one.get("tag")
        assert tag is None or one["taggedVersions"] == one["versions"], name
        is_optional = nullable.since != NEVER or (is_struct and not is_array and tag is not None)
        hint = f"Sequence[{type_name}]" if is_array else type_name
        default = self._default(one, is_array, is_struct, type_name)
        is_in_all = there.since <= struct.since and there.until >= struct.until
        is_required = is_in_all and "default" not in one and tag is None and name not in LEFT_OUT
        arguments = [
            type_name if is_struct else f'"{kind}"',
            *([f"since={there.since}"] if there.since else []),
            *([f"until={there.until}"] if there.until <= self._last else []),
            *([f"null_since={nullable.since}"] if nullable.since != NEVER else []),
            *([f"null_until={nullable.until}"] if nullable.until <= self._last else []),
            *([f"tag={tag}"] if tag is not None else []),
        ]
        if not is_required:
            arguments.append(f"default={default}")
        start = f"    {name}: {hint}{' | None' if is_optional else ''} = {'array' if is_array else 'field'}("
        line = f"{start}{', '.join(arguments)})"
        return line if len(line) <= LINE_MAX else f"{start}\n        {', '.join(arguments)}\n    )"

    def _default(self, one: Definition, is_array: bool, is_struct: bool, type_name: str) -> str:
        written = one.get("default")
        if one.get("name") == "ErrorMessage" and written is None and one.get("nullableVersions"):
            return "None"
        if written is None:
            if is_array:
                return "()"
            return "None" if is_struct else "NO_ID" if one["type"] == "uuid" else ZEROS[type_name]
        if written == "null":
            return "None"
        if type_name == "int":
            return str(int(str(written), 0))
        if type_name == "bool":
            return str(str(written) == "true")
        assert type_name == "str", one
        return json.dumps(written)


def structs_of(message: Definition) -> Iterator[tuple[str, list[Definition]]]:
    """The structs of a message and their fields, those within others first."""
    shared = {one["name"]: one["fields"] for one in message.get("commonStructs", ())}

    def within(fields: list[Definition]) -> Iterator[tuple[str, list[Definition]]]:
        for one in fields:
            kind = one["type"].removeprefix("[]")
            if kind not in PYTHON_TYPES:
                inner = one.get("fields") or shared[kind]
                yield from within(inner)
                yield kind, inner

    return within(message["fields"])


def modules(definitions: Definition) -> dict[str, str]:
    """The text of each file of the package by its name."""
    messages = definitions["messages"]
    texts = {
        f"{snake(name)}.py": Module(key, messages[f"{name}Request"], messages[f"{name}Response"]).text()
        for key, name in NAMES.items()
    }
    names = sorted(file.removesuffix(".py") for file in texts)
    listed = "".join(f"    from semel.wire.kafka import {name} as {name}\n" for name in names)
    version = definitions["kafka"]
    texts[
        "__init__.py"
    ] = f'''"""The messages of Apache Kafka {version}, a module for each API, imported when it is first named.

    request = kafka.metadata.MetadataRequest(topics=None, ...)

`make messages` writes this package from Kafka's own definitions: software developed at The Apache Software Foundation
(https://www.apache.org/), under the Apache License 2.0.
`semel.wire.message` says what the classes can do. Nothing here may be written by hand.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
{listed.rstrip()}


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return import_module(f"{{__name__}}.{{name}}")
    except ModuleNotFoundError:
        raise AttributeError(f"Kafka has no API {{name}}") from None
'''
    return texts


def main() -> None:
    if sys.argv[1:]:
        DEFINITIONS.write_text(as_text(definitions_in(Path(sys.argv[1]))))
    PACKAGE.mkdir(exist_ok=True)
    for old in PACKAGE.glob("*.py"):
        old.unlink()
    for name, text in modules(json.loads(DEFINITIONS.read_text())).items():
        (PACKAGE / name).write_text(text)


if __name__ == "__main__":
    main()
