"""Who is refused at a limit reads which one it is: an operator may raise it with `semel serve --limit NAME=N`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

import semel.log.broker
import semel.log.core
from semel.log.broker.limits import Limits

ROOMS: Final = [Path(next(iter(room.__path__))) for room in (semel.log.core, semel.log.broker)]
# These limits are constants.
FIXED: Final = ("entities have quotas", "users are on record", "expressions", "clients read decisions")


def texts() -> Iterator[str]:
    """Each text of the rules and of the broker, with `{}` for what is put into it."""
    for room in ROOMS:
        for path in sorted(room.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part)}}}"
                        for part in node.values
                    )


def test_a_refusal_at_a_limit_names_the_limit_that_an_operator_may_raise() -> None:
    known = {limit.name for limit in fields(Limits)}
    at_limits = [text for text in texts() if "no more are allowed" in text]
    assert len(at_limits) > 10
    for text in at_limits:
        if not any(word in text for word in FIXED):
            assert "_LIMITS" in text or known & set(re.findall(r"[a-z_]+_max", text.partition("allowed")[2])), text
