"""Configurations as they stand in files: properties as Java writes them, JSON, and TOML.

Any of them may hold the settings of a producer and of a consumer apart, under `producer` and `consumer`. This file must
never open a file: it is given the text.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Final

from semel.settings.vocabulary import Role

FORMATS: Final = ("properties", "json", "toml")

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A name ends at the first '=', ':' or blank that is not escaped; the value begins behind it.
_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class NotAConfiguration(ValueError):
    """The text is not what its format says."""


def read(text: str, form: str) -> dict[Role | None, dict[str, object]]:
    """The settings in a text, by role; under None what belongs to no role by its place."""
    if form == "properties":
        settings: dict[str, object] = dict(_properties(text))
        return _by_role(settings)
    try:
        found = json.loads(text) if form == "json" else tomllib.loads(text)
    except ValueError as error:
        raise NotAConfiguration(f"this is no {form.upper()}: {error}") from error
    if not isinstance(found, dict):
        raise NotAConfiguration(f"this {form.upper()} holds no settings by name")
    return _by_role(_flat(found))


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Names with dots, which TOML takes for tables in tables."""
    settings: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            settings |= _flat(value, f"{prefix}{name}.")
        else:
            settings[prefix + name] = value
    return settings


def _by_role(settings: Mapping[str, object]) -> dict[Role | None, dict[str, object]]:
    """What stands under a role goes to it, and what stands under none goes to all that are there."""
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


def _properties(text: str) -> dict[str, str]:
    settings = {}
    for line in _logical_lines(text):
        found = _PROPERTY.fullmatch(line)
        if found is not None:
            settings[_unescaped(found[1])] = _unescaped(found[2])
    return settings


def _logical_lines(text: str) -> list[str]:
    """Without comments and empty lines; a line that ends with a backslash goes on in the next one."""
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
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) == 5 else _ESCAPES.get(found[1], found[1]), text
    )
