"""The units for systemd that the pages show: what a reader copies opens nothing, and keeps the log from other users."""

import re
from configparser import ConfigParser
from pathlib import Path

import pytest

HOW_TO = Path(__file__).parent.parent.parent / "docs/how-to"
UNITS = {
    f"{path.stem}-{number}": unit
    for path in sorted(HOW_TO.glob("*.md"))
    for number, unit in enumerate(re.findall(r"^```ini\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL), 1)
    if "[Service]" in unit and "semel serve" in unit
}


def test_the_pages_on_a_broker_and_on_a_standby_have_a_unit() -> None:
    assert {name.partition("-")[0] for name in UNITS} == {"operate", "standby"}


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_a_unit_says_when_the_broker_is_ready_and_lets_nobody_else_read_the_log(unit: str) -> None:
    parsed = ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(unit)
    service = parsed["Service"]
    assert (service["Type"], service["UMask"], service["StateDirectoryMode"]) == ("notify", "0077", "0700")
    assert "--insecure" not in unit
