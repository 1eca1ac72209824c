"""JSON is shown in lines, and is the JSON that the log holds, digit by digit. It needs Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

NODE = shutil.which("node")
ASSET = files("semel.ui.console") / "assets" / "json.js"


def indented(*texts: str) -> list[str | None]:
    if NODE is None:
        pytest.skip("this machine has no Node")
    script = f"{ASSET.read_text()}\nconsole.log(JSON.stringify({json.dumps(texts)}.map(indented)));"
    command = [NODE, "--input-type=module", "--eval", script]
    told: list[str | None] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return told


VALUES = [
    {},
    [],
    {"a": []},
    {"a": {"b": [1, "x", None, True, {}]}, "c": [[], [[1]]]},
    {'"{[,:]}\\': 'a "quoted" \\ text: {1, [2]}\n'},
    {"é": "😀 \u2028"},
]


def test_json_is_indented_as_usual() -> None:
    assert indented(*map(json.dumps, VALUES)) == [json.dumps(value, indent=2) for value in VALUES]


def test_numbers_keep_their_digits_and_keys_that_are_there_twice_stay() -> None:
    (shown,) = indented('{"amount":10.50,"id":12345678901234567890,"rate":1E-7,"id":-0}')
    assert shown is not None
    parts = [line.strip(" ,") for line in shown.splitlines()[1:-1]]
    assert parts == ['"amount": 10.50', '"id": 12345678901234567890', '"rate": 1E-7', '"id": -0']


def test_what_is_no_object_and_no_array_stays_as_it_is() -> None:
    assert indented("", "1", '"{}"', "null", "{", "[1,]", "{} {}", "plain text") == [None] * 8


def test_json_that_is_nested_deep_stays_as_it_is() -> None:
    """A record of 64 KB would become gigabytes of spaces, in the browser of a person who only looks at a topic."""
    lines, none = indented("[" * 64 + "]" * 64, "[" * 32_000 + "]" * 32_000)
    assert lines is not None
    assert none is None
