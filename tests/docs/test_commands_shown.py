"""Every command that a page shows can be typed: the options are there, and so are the targets of make. None is run."""

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from semel.ui.cli import COMMANDS

ROOT: Final = Path(__file__).parent.parent.parent
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
TARGETS: Final = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# What ends a command where a shell reads it.
ENDS: Final = {"|", "||", "&&", ";", "&", ">", ">>", "<"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `semel` of each command in the page's examples."""
    blocks = re.findall(r"^```(?:(\w+)[ \w]*)?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for kind, block in blocks:
        # Of a session only what stands behind a prompt is a command; the rest is what commands print.
        prompt = r"\$ .*\bsemel " if kind in ("console", "text") else r"([A-Z_]+=\S+ )*semel [a-z]|.*\| semel [a-z]"
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(prompt, line) and not line.startswith("semel: "):
                yield from in_line(line)


def in_line(line: str) -> Iterator[list[str]]:
    words = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    command: list[str] | None = None
    for word in [*words, ";"]:
        if word in ENDS:
            if command:
                yield command
            command = None
        elif command is not None:
            command.append(word)
        elif word == "semel":
            command = []


def taken(words: list[str]) -> bool:
    if words[0].startswith("-"):
        return True
    if words[0] not in COMMANDS:
        return False
    module = importlib.import_module(f"semel.ui.cli.{words[0]}")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.configure(parser)
    try:
        parser.parse_args(words[1:])
    except SystemExit as ended:
        return not ended.code
    return True


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_is_shown_can_be_typed(page: Path) -> None:
    assert [" ".join(words) for words in commands(page) if not taken(words)] == []


def test_there_are_commands_to_try() -> None:
    assert {words[0] for page in PAGES for words in commands(page)} >= {"serve", "topics", "audit", "inbox", "lab"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_target_that_is_shown_is_in_the_makefile(page: Path) -> None:
    names = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert sorted(set(names) - TARGETS) == []
