"""The classes of the messages are what Kafka's definitions say, and nobody has changed them by hand."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from semel.wire.messages import request_type, response_type
from semel.wire.versions import NAMES, is_flexible

ROOT = Path(__file__).parent.parent.parent
TOOL = runpy.run_path(str(ROOT / "tools/kafka_messages.py"))
DEFINITIONS: dict[str, Any] = json.loads(TOOL["DEFINITIONS"].read_text())


def test_each_file_is_what_the_tool_writes() -> None:
    written = {path.name: path.read_text() for path in TOOL["PACKAGE"].glob("*.py")}
    assert written == TOOL["modules"](DEFINITIONS), "run `make messages`"


def test_the_definitions_are_kept_as_they_are_taken() -> None:
    assert TOOL["as_text"](DEFINITIONS) == TOOL["DEFINITIONS"].read_text()


@pytest.mark.parametrize("name", NAMES.values())
def test_the_header_of_a_request_has_tags_from_the_version_on_that_its_definition_says(name: str) -> None:
    definition = DEFINITIONS["messages"][f"{name}Request"]
    first, until = TOOL["versions"](definition["validVersions"])
    flexible = TOOL["versions"](definition["flexibleVersions"]).since
    for version in range(first, until):
        assert is_flexible(definition["apiKey"], version) == (version >= flexible)


def test_each_api_has_its_messages() -> None:
    for key, name in NAMES.items():
        assert (request_type(key).__name__, request_type(key).KEY) == (f"{name}Request", key)
        assert (response_type(key).__name__, response_type(key).KEY) == (f"{name}Response", key)
