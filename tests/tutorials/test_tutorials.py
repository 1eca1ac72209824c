"""Each tutorial is followed as it is written, and shows what its reader will see."""

from __future__ import annotations

from pathlib import Path

import pytest
from following import Reader, blocks

PAGES = Path(__file__).parent.parent.parent / "docs/tutorials"
TUTORIALS = sorted(path.stem for path in PAGES.glob("*.md") if path.name != "README.md")


# It lets Spark do what the README does, which is followed as well.
ALL_PIECES = pytest.param("together", marks=pytest.mark.slow)


@pytest.mark.parametrize("tutorial", [ALL_PIECES if name == "together" else name for name in TUTORIALS])
def test_a_reader_who_follows_the_tutorial_sees_what_it_shows(tutorial: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert reader.follow((PAGES / f"{tutorial}.md").read_text())


def test_every_tutorial_stands_in_the_index() -> None:
    index = (PAGES / "README.md").read_text()
    assert [name for name in TUTORIALS if f"]({name}.md)" not in index] == []


def test_a_line_that_differs_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo 3 payments\n{}\n```\n"
    with Reader(tmp_path) as reader:
        assert reader.follow(page.format("3 payments")) == 1
        with pytest.raises(AssertionError, match="echo 3 payments"):
            reader.follow(page.format("4 payments"))
        with pytest.raises(AssertionError, match="echo 3 payments"):
            reader.follow(page.format("3 payments\nand one more"))


def test_a_terminal_that_says_something_else_is_found(tmp_path: Path) -> None:
    page = "```console till\n$ python -c 'print(1); input()'\n{}\n```\n"
    with Reader(tmp_path) as reader, pytest.raises(AssertionError, match="in the terminal of python"):
        reader.follow(page.format("2"))


def test_a_program_without_a_name_is_found() -> None:
    with pytest.raises(AssertionError, match="which file is this"):
        list(blocks("Run this:\n```python\nprint(1)\n```\n"))
