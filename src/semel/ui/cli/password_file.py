"""Reads a password from the file that an option names, since every user of a machine sees the options of a command."""

from pathlib import Path

from semel.ui.cli.errors import Failure


def password_in(file: str) -> str:
    """The first line of the file, without the end of the line."""
    try:
        with Path(file).open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{file}: not UTF-8") from None
