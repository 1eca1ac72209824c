"""A cluster as the console asks it, and a Chromium for its pages."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from browsing import settings_of
from chromium import NoChromium, chromium_browser
from eventually import SECONDS_MAX
from semel.client.cluster import Cluster
from semel.testing.broker import FaultyBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT: Final = Path(__file__).parents[3]
AXE: Final = "axe-core@4.14.1"


@pytest.fixture
def cluster(broker: FaultyBroker) -> Iterator[Cluster]:
    with Cluster(settings_of(broker.bootstrap)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One for all tests: Playwright can be started once in a process."""
    try:
        with chromium_browser() as browser:
            yield browser
    except NoChromium as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that finds what a screen reader, or a person who sees less, would stumble over."""
    folder = ROOT / "build/axe"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tgz")):
        try:
            subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True, timeout=SECONDS_MAX)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"needs {AXE} from npm: {error}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()
