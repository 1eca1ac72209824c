"""Reads the files that options name: settings of a client (properties, JSON or TOML), and passwords."""

from pathlib import Path
from typing import NamedTuple

from semel.cli.errors import Failure
from semel.settings import Role
from semel.settings.formats import READ_FORMATS, NotAConfiguration, read


class SettingsFile(NamedTuple):
    """The settings by role, with None for those without a role, and the format of the file."""

    by_role: dict[Role | None, dict[str, object]]
    form: str


def read_client_settings(file: str) -> dict[str, object]:
    """The settings of one client. A file with no known ending is read as properties, as Kafka's tools do."""
    form = Path(file).suffix.removeprefix(".")
    by_role = _read(file, form if form in READ_FORMATS else "properties")
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


def password_in(file: str) -> str:
    """The first line of the file, without the end of the line."""
    try:
        with Path(file).open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{file}: not UTF-8") from None
