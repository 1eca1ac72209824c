"""Pages of the console in a browser: opens one, and finds what stands in somebody's way on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def visit(page: Page, path: str) -> None:
    page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/")[2] + path)
    page.get_by_role("heading", level=1).wait_for()


def troubles(page: Page, path: str, axe: str, width: int) -> list[str]:
    """What stands in somebody's way on a page."""
    found: list[str] = []
    visit(page, path)
    page.locator("main details.words, main .empty").first.wait_for()
    page.evaluate(axe)
    for violation in page.evaluate("axe.run()")["violations"]:
        places = [node["html"][:150] for node in violation["nodes"][:3]]
        found.append(f"{path}: {violation['id']}: {violation['help']}: {places}")
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{path}: {wide} pixels wide")
    assert "hacked" not in page.title()
    return found
