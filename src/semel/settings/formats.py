"""Settings as text: a configuration read from properties, JSON or TOML, and a bundle written to be pasted.

A configuration may have separate settings for a producer and a consumer, under `producer` and `consumer`. A bundle is
written with the reason beside each setting; JSON has no comments. This module must never open a file, nor print.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from semel.settings.bundles import Bundle, Setting
from semel.settings.clients import Client, Role

READ_FORMATS: Final = ("properties", "json", "toml")

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A name ends at the first '=', ':' or blank that is not escaped; the value begins after it.
_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class NotAConfiguration(ValueError):
    """The text is not valid in its format."""


def read(text: str, form: str) -> dict[Role | None, dict[str, object]]:
    """The settings in a text, by role; settings without a role are under None."""
    if form == "properties":
        settings: dict[str, object] = dict(_read_properties(text))
        return _by_role(settings)
    try:
        document = json.loads(text) if form == "json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAConfiguration(f"this is no {form.upper()}: {error}") from error
    if not isinstance(document, dict):
        raise NotAConfiguration(f"this {form.upper()} holds no settings by name")
    return _by_role(_flat(document))


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Turn nested tables, as which TOML parses names with dots, back into such names."""
    settings: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            settings |= _flat(value, f"{prefix}{name}.")
        else:
            settings[prefix + name] = value
    return settings


def _by_role(settings: Mapping[str, object]) -> dict[Role | None, dict[str, object]]:
    """Settings under a role belong to that role; the others belong to each role in the file."""
    parts: dict[Role | None, dict[str, object]] = {None: {}}
    for name, value in settings.items():
        section, _, rest = name.partition(".")
        if section in list(Role) and rest:
            parts.setdefault(Role(section), {})[rest] = value
        else:
            parts[None][name] = value
    shared = parts[None]
    if len(parts) == 1:
        return parts
    return {role: {**shared, **own} for role, own in parts.items() if role is not None}


def _read_properties(text: str) -> dict[str, str]:
    settings = {}
    for line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        if match is not None:
            settings[_unescaped(match[1])] = _unescaped(match[2])
    return settings


def _logical_lines(text: str) -> list[str]:
    """The lines without comments and empty lines; a line that ends with a backslash continues in the next one."""
    lines: list[str] = []
    goes_on = False
    for line in text.splitlines():
        line = line.lstrip()
        if not goes_on and (not line or line[0] in "#!"):
            continue
        if goes_on:
            lines[-1] += line
        else:
            lines.append(line)
        goes_on = (len(lines[-1]) - len(lines[-1].rstrip("\\"))) % 2 == 1
        if goes_on:
            lines[-1] = lines[-1][:-1]
    return [line.rstrip() for line in lines]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(
        lambda match: chr(int(match[1][1:], 16)) if len(match[1]) == 5 else _ESCAPES.get(match[1], match[1]), text
    )


# -- write -------------------------------------------------------------------------------------------------------------


def write(bundle: Bundle, form: str | None = None, roles: Iterable[Role] = tuple(Role)) -> str:
    """The settings of these roles as text. The default format is the usual one for the client."""
    form = form or ("properties" if bundle.client is Client.JAVA else "python")
    if form == "json":
        document = {role.value: {setting.name: setting.value for setting in bundle.of(role)} for role in roles}
        return json.dumps(document, indent=2)
    return "\n\n".join(_WRITERS[form](role, bundle.of(role)) for role in roles)


def _python(role: Role, settings: Iterable[Setting]) -> str:
    lines = [(f"    {json.dumps(setting.name)}: {_literal(setting.value)},", setting.why) for setting in settings]
    return "\n".join([f"{role} = {{", *_side_by_side(lines), "}"])


def _properties(role: Role, settings: Iterable[Setting]) -> str:
    lines = [f"# {setting.why}\n{setting.name}={_lower(setting.value)}" for setting in settings]
    return "\n".join([f"# {role}", *lines])


def _toml(role: Role, settings: Iterable[Setting]) -> str:
    lines = [(f"{json.dumps(setting.name)} = {json.dumps(setting.value)}", setting.why) for setting in settings]
    return "\n".join([f"[{role}]", *_side_by_side(lines)])


def _side_by_side(lines: list[tuple[str, str]]) -> list[str]:
    width = max(len(line) for line, _ in lines)
    return [f"{line:{width}}  # {why}" for line, why in lines]


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _lower(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_WRITERS: Final[Mapping[str, Callable[[Role, Iterable[Setting]], str]]] = {
    "python": _python,
    "properties": _properties,
    "toml": _toml,
}
WRITTEN_FORMATS: Final = (*_WRITERS, "json")
