"""The log that Spark's streaming file sink keeps in `_spark_metadata`: which files of a directory are committed.

Each batch is a file of that directory, named by its number, with one line of JSON for each file it added; now and then
Spark writes all of them so far as one file `N.compact`. A data file that the log does not name was written by an
attempt that failed or was replaced. This module must never call a file committed because it looks whole.
"""

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from semel.audit.errors import AuditFailed

METADATA: Final = "_spark_metadata"

_VERSION: Final = "v1"
_COMPACT: Final = ".compact"
_DELETED: Final = "delete"


def committed_files(directory: Path) -> list[Path]:
    """The files that the log names, in its order. They may be missing; then a reader of the log fails, too."""
    log = directory / METADATA
    try:
        names = [path.name for path in log.iterdir() if not path.name.startswith(".")]
        batches = _batches_to_read(log, names)
        entries = [entry for name in batches for entry in _entries(log / name)]
    except OSError as error:
        raise AuditFailed(f"{error.filename or log}: {error.strerror}") from None
    deleted = {entry["path"] for entry in entries if entry.get("action") == _DELETED}
    added = dict.fromkeys(entry["path"] for entry in entries if entry["path"] not in deleted)
    return [_in_directory(directory, uri) for uri in added]


def _batches_to_read(log: Path, names: list[str]) -> list[str]:
    """The last `.compact` file, which has the lines of all before it, and the files of the batches after it. If one of
    these is missing, nobody knows what it named, and Spark does not read such a log either.
    """
    compact = [int(name.removesuffix(_COMPACT)) for name in names if _is_compact(name)]
    last = max(compact, default=-1)
    following = sorted(int(name) for name in names if name.isdecimal() and int(name) > last)
    for expected, batch in enumerate(following, start=last + 1):
        if batch != expected:
            raise AuditFailed(f"{log / str(expected)}: this batch is missing from the log, and later ones are there")
    return [*([f"{last}{_COMPACT}"] if compact else []), *(str(batch) for batch in following)]


def _is_compact(name: str) -> bool:
    return name.endswith(_COMPACT) and name.removesuffix(_COMPACT).isdecimal()


def _entries(path: Path) -> list[dict[str, str]]:
    try:
        version, _, rest = path.read_text(encoding="utf-8").partition("\n")
    except UnicodeDecodeError:
        raise AuditFailed(f"{path}: this log is not UTF-8") from None
    if version != _VERSION:
        raise AuditFailed(f"{path}: this log has the version {version[:20]!r}, and {_VERSION} is what can be read")
    try:
        entries = [json.loads(line) for line in rest.splitlines()]
        return [{"path": str(entry["path"]), "action": str(entry["action"])} for entry in entries]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise AuditFailed(f"{path}: a line of this log is no entry of Spark's file sink") from None


def _in_directory(directory: Path, uri: str) -> Path:
    """Where the file is now: the log has the path from the time of writing, and the directory may have been moved."""
    written = Path(unquote(urlsplit(uri).path))
    for root in (directory, directory.resolve()):
        if written.is_relative_to(root):
            return directory / written.relative_to(root)
    parts = written.parts
    if directory.name in parts:
        after = len(parts) - parts[::-1].index(directory.name)
        return directory.joinpath(*parts[after:])
    return directory / written.name
