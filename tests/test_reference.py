"""The reference pages say what the code says."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES: dict[Path, str] = runpy.run_path(str(ROOT / "tools/reference.py"))["pages"]()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_what_the_code_says_now(path: Path) -> None:
    assert path.read_text() == PAGES[path], "run `make map`"


def test_every_public_name_says_what_it_is_for_and_the_page_of_them_is_what_the_code_says_now() -> None:
    pages: dict[Path, str] = runpy.run_path(str(ROOT / "tools/python_reference.py"))["pages"]()
    for path, content in pages.items():
        assert path.read_text() == content, "run `make map`"
