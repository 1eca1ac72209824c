"""A bundle as text that can be pasted: a dictionary of Python, properties, TOML, or JSON, which has no comments.

Each setting has its reason beside it. This file must never print.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from semel.settings.bundles import Bundle, Setting
from semel.settings.vocabulary import Client, Role


def write(bundle: Bundle, form: str | None = None, roles: Iterable[Role] = tuple(Role)) -> str:
    """The settings of these roles. Without a form it is the one that the client's users write."""
    form = form or ("properties" if bundle.client is Client.JAVA else "python")
    if form == "json":
        shown = {role.value: {setting.name: setting.value for setting in bundle.of(role)} for role in roles}
        return json.dumps(shown, indent=2)
    return "\n\n".join(_FORMS[form](role, bundle.of(role)) for role in roles)


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


_FORMS: Final[Mapping[str, Callable[[Role, Iterable[Setting]], str]]] = {
    "python": _python,
    "properties": _properties,
    "toml": _toml,
}
FORMS: Final = (*_FORMS, "json")
