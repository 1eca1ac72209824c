"""A machine whose accounts are those that a test names, as a program sees it: /etc/passwd is another file there.

Only root can make one, where mounts are allowed; elsewhere the test is skipped. This must never change the machine for
anybody but the program that is run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def run_among(
    accounts: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """What the command says where `accounts` is /etc/passwd; the files for that are made in the directory."""
    mounts = []
    # Without the second, systemd adds accounts of its own.
    for name, text in (("passwd", accounts), ("nsswitch.conf", "passwd: files\n")):
        file = directory / name
        file.write_text(text)
        file.chmod(0o644)
        mounts.append(f'mount --bind "{file}" /etc/{name}')
    change = ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]
    if shutil.which("unshare") is None or subprocess.run([*change, "true"], capture_output=True).returncode != 0:
        pytest.skip("the accounts of this machine cannot be hidden from a program here")
    return subprocess.run([*change, *command], env=environment, capture_output=True, text=True)
