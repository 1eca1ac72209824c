"""Passwords in files: a password is the first line of its file, without the end of the line."""

from pathlib import Path

from semel.cli.errors import Failure


def password_in(file: str) -> str:
    try:
        with Path(file).open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{file}: not UTF-8") from None
