"""Reads the settings of a client from the file that an option names: properties, JSON or TOML."""

from pathlib import Path
from typing import NamedTuple

from semel.settings import Role
from semel.settings.formats import READ_FORMATS, NotAConfiguration, read
from semel.ui.cli.errors import Failure


class SettingsFile(NamedTuple):
    """The settings by role, with None for those without a role, and the format of the file."""

    by_role: dict[Role | None, dict[str, object]]
    form: str


def read_client_settings(file: str) -> dict[str, object]:
    """The settings of one client. A file with no known ending is read as properties, as Kafka's tools do."""
    form = Path(file).suffix.removeprefix(".")
    by_role = _read(file, form if form in READ_FORMATS else "properties")
    if None not in by_role:
        roles = " and ".join(role.value for role in by_role if role is not None)
        raise Failure(f"{file}: its settings are for a {roles}; a command takes those of its connection and its login")
    return dict(by_role[None])


def read_settings_file(file: str) -> SettingsFile:
    form = Path(file).suffix.removeprefix(".")
    if form not in READ_FORMATS:
        raise Failure(f"{file}: its name has to end with one of .{', .'.join(READ_FORMATS)}")
    return SettingsFile(_read(file, form), form)


def _read(file: str, form: str) -> dict[Role | None, dict[str, object]]:
    try:
        return read(Path(file).read_text(encoding="utf-8"), form)
    except (OSError, UnicodeDecodeError, NotAConfiguration) as error:
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error
