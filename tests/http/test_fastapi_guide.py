"""What the guide to FastAPI shows is what happens: its service is a module, and its tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import forked

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/fastapi.md").read_text()


def test_the_guide_to_fastapi_shows_a_service_whose_tests_pass(tmp_path: Path) -> None:
    service, tests = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    (tmp_path / "async_shop.py").write_text(service)
    (tmp_path / "test_shop.py").write_text(tests)
    assert forked.tests_passed(tmp_path) == 2
