"""A log in JSON: one line for each record, whatever stands in it, with the ids beside the text."""

import json
import logging

from semel.service.json_lines import JsonLines


def test_a_record_is_one_line_with_the_ids_that_the_program_has_handed_over() -> None:
    record = logging.makeLogRecord(
        {"name": "semel.inbox", "levelname": "WARNING", "msg": "attempt %d\nof %r", "args": (1, "x"), "created": 0.5}
        | {"event": "order-7", "offset": 3}
    )
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "at": "1970-01-01T00:00:00.500Z",
        "level": "warning",
        "logger": "semel.inbox",
        "message": "attempt 1\nof 'x'",
        "event": "order-7",
        "offset": 3,
    }
