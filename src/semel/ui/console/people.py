"""The people who may log in to a console, from a file that `semel console user` writes.

The file has no passwords, only their scrypt hashes, each with its own salt. Refusing an unknown name takes as long as
refusing a wrong password, and after some wrong passwords all tries are refused for a minute. A person may change things
only if the file says so and the console was started with --allow-changes.
"""

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from semel.ui.console.http import PageRefused

FORMAT: Final = 1
PEOPLE_MAX: Final = 1_000
NAME_MAX: Final = 200
PASSWORD_MAX: Final = 1_000
PASSWORD_MIN: Final = 8
FILE_BYTES_MAX: Final = 1024 * 1024
# A try takes 16 MB and some 50 ms.
_COST: Final = {"n": 1 << 14, "r": 8, "p": 1}
_SALT_BYTES: Final = 16
# After this many wrong passwords within the time, from anybody, further tries are refused.
WRONG_MAX: Final = 10
WRONG_SECONDS: Final = 60.0


class Person(NamedTuple):
    name: str
    may_change: bool
    # The salted hash of the password; each `add` makes another one, even of the same password.
    scrypt: str


class NoPeople(ValueError):
    """The file cannot be used; the message says why."""


class People:
    """The people in one file, which is read again when it has changed."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises NoPeople."""
        self._path = path
        self._clock = clock
        self._wrong: list[float] = []
        # One try at a time, because each takes memory.
        self._trying = threading.Lock()
        self._nobody = _entry("nobody", may_change=False)
        self._stamp: tuple[int, ...] | None = None
        self._known = read(path)

    def check(self, name: str, password: str) -> Person:
        """The person with this name and password; PageRefused if there is none."""
        if len(name) > NAME_MAX or len(password) > PASSWORD_MAX:
            raise PageRefused(403, "no person has this name and password")
        with self._trying:
            now = self._clock()
            self._wrong = [at for at in self._wrong if now - at < WRONG_SECONDS]
            if len(self._wrong) >= WRONG_MAX:
                raise PageRefused(503, "too many wrong passwords: try again in a minute")
            entry = self._read().get(name)
            known = entry or self._nobody
            fits = hmac.compare_digest(_digest(password, bytes.fromhex(known["salt"])), known["scrypt"])
            if entry is None or not fits:
                self._wrong.append(now)
                raise PageRefused(403, "no person has this name and password")
            return _person(name, entry)

    def now(self, person: Person) -> Person | None:
        """The person as in the file now; None for one who was removed, or has another password now. PageRefused while
        the file cannot be read.
        """
        stamp = self._look()
        if stamp is None or stamp != self._stamp:
            # If this fails, the people in the former content are not let in: one of them may have been removed in the
            # content that cannot be read.
            self._known = self._read()
            self._stamp = stamp
        entry = self._known.get(person.name)
        if entry is None or entry["scrypt"] != person.scrypt:
            return None
        return _person(person.name, entry)

    def _read(self) -> dict[str, Any]:
        try:
            return read(self._path)
        except NoPeople as error:
            raise PageRefused(502, str(error)) from None

    def _look(self) -> tuple[int, ...] | None:
        """A value that changes when the file changes, or who may read it; None if there is no file to look at."""
        try:
            state = self._path.stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino


def read(path: Path) -> dict[str, Any]:
    """The entries of a file by their names. Raises NoPeople."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise NoPeople(f"{path}: it has more than {FILE_BYTES_MAX} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise NoPeople(f"{path}: format {content['format']!r} is not known")
        people = {
            str(name): {
                "salt": bytes.fromhex(one["salt"]).hex(),
                "scrypt": str(one["scrypt"]),
                "may_change": one["may_change"] is True,
            }
            for name, one in content["people"].items()
        }
    except FileNotFoundError as error:
        raise NoPeople(f"{path}: {error.strerror}; semel console user add makes it") from None
    except OSError as error:
        raise NoPeople(f"{path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, NoPeople):
            raise
        raise NoPeople(f"{path}: it is no file of semel console user") from None
    return people


def add(path: Path, name: str, password: str, *, may_change: bool) -> None:
    """Add a person, or change the password and the rights of one, which ends the sessions. Raises NoPeople."""
    if not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise NoPeople(f"a name has 1 to {NAME_MAX} characters that can be printed")
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise NoPeople(f"a password has {PASSWORD_MIN} to {PASSWORD_MAX} characters")
    people = read(path) if path.exists() else {}
    if name not in people and len(people) >= PEOPLE_MAX:
        raise NoPeople(f"{path} has {PEOPLE_MAX} people already")
    people[name] = _entry(password, may_change=may_change)
    _write(path, people)


def remove(path: Path, name: str) -> None:
    """Remove a person, which also ends the person's sessions. Raises NoPeople."""
    people = read(path)
    if people.pop(name, None) is None:
        raise NoPeople(f"{path} has nobody named {name!r}")
    _write(path, people)


def _person(name: str, entry: dict[str, Any]) -> Person:
    return Person(name, entry["may_change"], entry["scrypt"])


def _entry(password: str, *, may_change: bool) -> dict[str, Any]:
    salt = secrets.token_bytes(_SALT_BYTES)
    return {"salt": salt.hex(), "scrypt": _digest(password, salt), "may_change": may_change}


def _digest(password: str, salt: bytes) -> str:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, **_COST).hex()


def _write(path: Path, people: dict[str, Any]) -> None:
    unfinished = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "people": people}, file, indent=1)
            file.flush()
            # Otherwise a loss of power may leave an empty file under this name, and the people before are gone, too.
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        raise NoPeople(f"{path}: {error.strerror or error}") from None
