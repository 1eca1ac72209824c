"""The findings of `semel doctor`: one line each, and a line with advice for a thing that is missing."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Mark(StrEnum):
    GOOD = "ok"
    # A thing that only parts of semel need, or that works, but not well.
    WANTING = "--"
    # It does not work without it.
    BAD = "!!"


class Finding(NamedTuple):
    mark: Mark
    what: str
    state: str
    remedy: str = ""


def print_findings(findings: Sequence[Finding]) -> int:
    """Print the findings; return the exit code: 1 if something is missing that the broker needs."""
    width = max(len(finding.what) for finding in findings)
    for mark, what, state, remedy in findings:
        print(f"{mark}  {what:{width}}  {state}" + (f": {remedy}" if remedy else ""))
    return 1 if any(finding.mark is Mark.BAD for finding in findings) else 0
