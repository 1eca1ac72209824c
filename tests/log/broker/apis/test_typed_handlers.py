"""What a handler gets and gives has the type of its API, so that mypy sees each field of both."""

import re
from collections.abc import Generator
from inspect import unwrap
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from semel.log.broker import apis
from semel.wire.messages import request_type, response_type
from semel.wire.versions import NAMES

HINTS = {key: get_type_hints(unwrap(handle)) for key, handle in apis.HANDLERS.items()}
# The others get bytes, and name the type when they decode them.
GIVEN_REQUESTS = [key for key, hints in HINTS.items() if "request" in hints]


@pytest.mark.parametrize("api_key", GIVEN_REQUESTS, ids=NAMES.get)
def test_a_handler_takes_the_request_of_its_api_and_returns_its_response(api_key: int) -> None:
    hints = HINTS[api_key]
    assert hints["request"] is request_type(api_key)
    returned: Any = hints["return"]
    if get_origin(returned) is Generator:
        returned = get_args(returned)[2]
    assert returned is response_type(api_key)


def test_no_handler_reads_or_writes_a_field_that_mypy_does_not_see() -> None:
    folder = Path(apis.__file__).parent
    # These two know no particular API, and so none of their types.
    others = {"__init__.py", "answers.py"}
    sources = {path.name: path.read_text() for path in folder.glob("*.py") if path.name not in others}
    unseen = re.compile(r"\b(getattr|hasattr|setattr)\(|\bAny\b")
    assert {name: unseen.findall(source) for name, source in sources.items() if unseen.search(source)} == {}
