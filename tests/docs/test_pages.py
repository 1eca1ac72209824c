"""The documents hang together: every link leads somewhere, to the very heading, and every page stands in the index."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
# Beyond this it is a paragraph that has lost its line break.
HEADING_CHARACTERS_MAX: Final = 110
LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """Without its examples, in which brackets mean something else."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as GitHub makes it of them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def targets(page: Path) -> list[tuple[Path, str]]:
    """Each link to a file of ours, and the heading in it that is meant, if one is."""
    links = LINK.findall(prose(page))
    return [((page.parent / target).resolve() if target else page, anchor) for target, anchor in links]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    assert [name_of(target) for target, _ in targets(page) if not target.exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_to_a_heading_finds_it(page: Path) -> None:
    headings = [(target, anchor) for target, anchor in targets(page) if anchor and target.suffix == ".md"]
    assert [(name_of(target), anchor) for target, anchor in headings if anchor not in anchors(target)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_heading_is_no_paragraph(page: Path) -> None:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    assert [heading for heading in headings if len(heading) > HEADING_CHARACTERS_MAX] == []


def test_every_page_stands_in_the_index() -> None:
    index = DOCS / "README.md"
    # Each decision stands in the table of decisions, which is a page of the index.
    indexed = {target for page in (index, DOCS / "adr/README.md") for target, _ in targets(page)}
    assert [name_of(page) for page in DOCS.rglob("*.md") if page != index and page not in indexed] == []
