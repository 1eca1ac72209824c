"""Takes the pictures of the console in the documents: `make pictures`, which has Playwright in build/browser.

Each shows a real console of a real broker with something on every page (tests/console_scene.py), while a producer whose
ACKs are lost goes on. It must never write anything but docs/pictures/console-*.png.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from chromium import NoChromium, chromium_browser
from console_scene import produced_on, scene
from semel_command import serving

ROOT: Final = Path(__file__).parent.parent
PICTURES: Final = ROOT / "docs/pictures"
LIGHT: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}
DARK: Final[dict[str, Any]] = {**LIGHT, "color_scheme": "dark"}
PHONE: Final[dict[str, Any]] = {"viewport": {"width": 360, "height": 780}, "color_scheme": "light"}
# The name of each picture, its page, how it is looked at, and what has to be on it.
SHOTS: Final = (
    ("overview", "overview", LIGHT, "duplicates not stored"),
    ("decisions", "decisions?outcome=duplicate", DARK, "DUPLICATE offset"),
    ("transactions", "transactions", LIGHT, "Readers of committed records wait"),
    ("producers", "producers?topic=payments", LIGHT, "next"),
    ("records", "records?topic=payments&partition=0&from=12", LIGHT, "held back"),
    ("audits", "audits", LIGHT, "Each column is an audit"),
    ("phone", "decisions", PHONE, "were not stored"),
)


def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="semel-pictures-") as directory,
            scene(Path(directory), has_store=True) as stage,
            serving("console", "--listen", "127.0.0.1:0", *stage.options(), "--allow-changes") as console,
            chromium_browser() as browser,
        ):
            assert console.stdout is not None
            lines = iter(console.stdout.readline, "")
            address = next(lines).rpartition(" ")[2].strip()
            stop = threading.Event()
            going_on = threading.Thread(target=produced_on, args=(stage.broker, stop))
            going_on.start()
            try:
                for name, page, options, has in SHOTS:
                    context = browser.new_context(**options)
                    shown = context.new_page()
                    shown.goto(address)
                    shown.get_by_role("heading", level=1).wait_for()
                    address = next(lines).rpartition(" ")[2].strip()
                    shown.goto(f"{address.partition('/enter')[0]}/{page}")
                    shown.get_by_text(has).first.wait_for()
                    # As long as it takes for the chart to have something to show.
                    shown.wait_for_timeout(8_000 if "decisions" in page or page == "overview" else 1_500)
                    shown.screenshot(path=str(PICTURES / f"console-{name}.png"))
                    context.close()
                    print(f"docs/pictures/console-{name}.png", flush=True)
            finally:
                stop.set()
                going_on.join()
    except NoChromium as missing:
        sys.exit(f"pictures: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
