"""Scripts that Spark starts: written once, and kept for every later process of this user.

Many processes may write the same one at once, and none may ever see half of it. Nothing may be kept where another user
could change it.
"""

import contextlib
import hashlib
import os
import pwd
import secrets
import shlex
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from semel.spark.scratch import scratch


def kept(kind: str, description: str, write: Callable[[Path], None], *, in_a_word: bool = False) -> Path:
    """The directory that `write` fills, if it is not filled yet. What has the same description is the same. With
    `in_a_word` it lies where `is_word` holds, if there is such a place.
    """
    name = hashlib.sha256(description.encode()).hexdigest()[:16]
    # A user without a name has no home, and somebody may have written anything there.
    with contextlib.suppress(OSError, KeyError, UnicodeDecodeError):
        directory = _cache() / "semel" / kind / name
        above = [*reversed(directory.parents[:3]), directory]
        if is_word(directory) or not in_a_word:
            for each in above:
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            if all(map(_is_private, above)):
                write(directory)
                if all(map(_is_private, directory.rglob("*"))):
                    return directory
    # In containers the home directory is often not writable.
    directory = scratch() / kind / name
    write(directory)
    return directory


def is_word(path: Path) -> bool:
    """Whether the first line of a script, and a shell, take this path as it is. Spark does not quote it everywhere."""
    return shlex.quote(str(path)) == str(path)


def _is_private(path: Path) -> bool:
    """Whether only this user can change it; a link can only be replaced, in its directory."""
    found = path.lstat()
    return found.st_uid == os.getuid() and (path.is_symlink() or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _cache() -> Path:
    """This user's directory for files that can be made again."""
    # By the XDG Base Directory Specification a relative path is ignored.
    if os.path.isabs(chosen := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(chosen)
    # An empty HOME counts as unset: otherwise the path would be relative to the current directory.
    return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir, ".cache")


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_file() and os.access(path, os.X_OK) and path.read_text("utf-8") == text:
        return
    descriptor, written = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(descriptor, 0o755)
    os.replace(written, path)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink() and path.readlink() == target:
        return
    made = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    made.symlink_to(target)
    os.replace(made, path)
