"""A Chromium for the tests of pages and for the pictures: Debian's, or the one that SEMEL_TEST_CHROMIUM names.

Playwright drives it; `make test-browser` installs that into build/browser.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


class NoChromium(Exception):
    """There is none here; the message says how to get it."""


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    """Raises NoChromium where Playwright or a Chromium is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoChromium("needs Playwright: make test-browser installs it") from None
    found = os.environ.get("SEMEL_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise NoChromium("needs a Chromium: apt-get install chromium, or SEMEL_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
