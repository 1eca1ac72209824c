"""Runs the commands that the guide shows: what they print is what stands there."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/audit.md").read_text()
KEY = "000102030405060708090a0b0c0d0e0f"


def shown(command: str) -> tuple[str, str]:
    """The whole command that begins so, and what it prints."""
    blocks = re.findall(r"^```text\n\$ (.*?)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if block[0].startswith(command)]
    return block


def printed(command: str, directory: Path, *more: str) -> tuple[str, int]:
    semel = shlex.quote(str(Path(sys.executable).with_name("semel")))
    line = command.replace("semel", semel, 1) + "".join(f" {word}" for word in more)
    ran = subprocess.run(line, shell=True, cwd=directory, capture_output=True, text=True, timeout=250)
    assert ran.stderr == ""
    return re.sub(r"in \d+\.\d s", "in 0.1 s", ran.stdout), ran.returncode


def test_the_first_audit_prints_what_is_shown(tmp_path: Path) -> None:
    [script] = re.findall(r"^```python\n# make_tables.py\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=250)
    command, output = shown("semel audit --source")
    assert printed(command, tmp_path, "--key", KEY) == (output, 1)


def test_the_check_of_readers_prints_what_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "out/_spark_metadata"
    log.mkdir(parents=True)
    for name, ids in (
        ("part-00000.parquet", ["p-1", "p-2"]),
        ("part-00000-of-an-attempt-that-was-killed.parquet", ["p-1"]),
    ):
        pq.write_table(pa.table({"event_id": ids}), tmp_path / "out" / name)
    entry = json.dumps({"path": (tmp_path / "out/part-00000.parquet").as_uri(), "action": "add"})
    (log / "0").write_text(f"v1\n{entry}")
    command, output = shown("semel audit parquet")
    assert printed(command, tmp_path) == (output, 1)
