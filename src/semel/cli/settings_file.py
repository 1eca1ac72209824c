"""A file with the settings of a client, as a command is given one: properties, JSON or TOML, told by the end of its
name. What the settings mean is said elsewhere."""

from pathlib import Path
from typing import NamedTuple

from semel.cli.errors import Failure
from semel.settings import Role
from semel.settings.formats import READ_FORMATS, NotAConfiguration, read


class SettingsFile(NamedTuple):
    """The settings by role, under None those of no role; and how the file is written."""

    by_role: dict[Role | None, dict[str, object]]
    form: str


def read_settings_file(file: str) -> SettingsFile:
    form = Path(file).suffix.removeprefix(".")
    if form not in READ_FORMATS:
        raise Failure(f"{file}: its name has to end with one of .{', .'.join(READ_FORMATS)}")
    try:
        return SettingsFile(read(Path(file).read_text(encoding="utf-8"), form), form)
    except (OSError, UnicodeDecodeError, NotAConfiguration) as error:
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error
