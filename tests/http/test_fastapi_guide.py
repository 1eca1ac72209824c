"""What the guide to FastAPI shows is what happens: its service is a module, and its tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/fastapi.md").read_text()
pytest_plugins = ["pytester"]


def test_the_guide_to_fastapi_shows_a_service_whose_tests_pass(pytester: pytest.Pytester) -> None:
    service, tests = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(async_shop=service, test_shop=tests)
    pytester.runpytest_subprocess("-p", "no:faker").assert_outcomes(passed=2)
