"""Scripts that Spark starts: written once, and kept for every later process of this user.

Many processes may write the same one at once, and none may ever see half of it.
"""

import contextlib
import hashlib
import os
import pwd
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from semel.spark.scratch import scratch


def kept(kind: str, description: str, write: Callable[[Path], None]) -> Path:
    """The directory that `write` fills, if it is not filled yet. What has the same description is the same."""
    name = hashlib.sha256(description.encode()).hexdigest()[:16]
    # A user without a name has no home.
    with contextlib.suppress(OSError, KeyError):
        directory = _cache() / "semel" / kind / name
        write(directory)
        return directory
    # In containers the home directory is often not writable.
    directory = scratch() / kind / name
    write(directory)
    return directory


def _cache() -> Path:
    """This user's directory for files that can be made again."""
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen)
    # An empty HOME counts as unset: otherwise the path would be relative to the current directory.
    return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir, ".cache")


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and os.access(path, os.X_OK) and path.read_text() == text:
        return
    descriptor, written = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        os.fchmod(descriptor, 0o755)
    os.replace(written, path)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and path.readlink() == target:
        return
    made = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    made.symlink_to(target)
    os.replace(made, path)
