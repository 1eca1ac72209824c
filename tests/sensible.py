"""The sensible request that the own test of an API names: `REQUEST` in `test_list_groups.py` would be that of
ListGroups, with the fields of all versions. Tests of every API ask it, so a new API needs no line in them.
"""

import runpy
from functools import cache
from pathlib import Path
from typing import Any

from semel.log.broker.apis import HANDLERS

TESTS = Path(__file__).parent / "log/broker/apis"


@cache
def requests_of_own_tests() -> dict[int, dict[str, Any]]:
    """By the keys of the APIs."""
    tests = {key: TESTS / f"test_{handle.__module__.rpartition('.')[2]}.py" for key, handle in HANDLERS.items()}
    named = {key: test for key, test in tests.items() if test.exists() and "\nREQUEST" in test.read_text()}
    return {key: runpy.run_path(str(test))["REQUEST"] for key, test in named.items()}
