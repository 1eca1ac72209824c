"""Keeps verdicts: one JSON file for each audit, in a directory that the console shows as a history.

A file is written under another name and gets its own when it is whole, so nobody reads half a verdict. Nothing is ever
overwritten: the name is the time of the audit, and a number if two audits had the same time.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from semel.audit.errors import AuditFailed
from semel.audit.verdict import Verdict

FORMAT: Final = 1


def keep(verdict: Verdict, directory: Path, *, began_ms: int, seconds: float, question: dict[str, Any]) -> Path:
    """Add a verdict to the directory, which is made if it does not exist; `question` says what the audit was limited
    to. Raises `AuditFailed` if it cannot be written.
    """
    record = {
        "format": FORMAT,
        "began_ms": began_ms,
        "seconds": round(seconds, 3),
        "asked": question,
        "verdict": verdict.as_json(),
    }
    day = datetime.fromtimestamp(began_ms / 1000, UTC).strftime("%Y-%m-%dT%H%M%S.%f")[:-3]
    content = json.dumps(record, indent=1)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = directory / f".audit-{day}-{os.getpid()}"
        unfinished.write_text(content, encoding="utf-8")
        try:
            return _named(unfinished, directory, f"audit-{day}Z")
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise AuditFailed(f"{directory}: the verdict cannot be kept: {error.strerror or error}") from None


def _named(unfinished: Path, directory: Path, name: str) -> Path:
    """Give the file its name by a link: unlike a rename, it replaces nothing."""
    number = 1
    while True:
        path = directory / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        try:
            os.link(unfinished, path)
        except FileExistsError:
            number += 1
        else:
            return path
