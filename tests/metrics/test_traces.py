"""Traces cost nothing where nobody traces."""

import subprocess
import sys

import pytest

# In a process of its own: what is imported stays so.
UNTRACED = """
import sys
{before}
from semel import inbox, outbox
from semel.metrics import traces
with traces.span("process orders", "CONSUMER", {{}}) as span:
    assert span is None
assert traces.trace_headers() == {{}}
assert {then}
print("nothing")
"""


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (
            "sys.modules['opentelemetry'] = None",
            "not [one for one in sys.modules if one.startswith('opentelemetry.')]",
        ),
        ("", "not [one for one in sys.modules if one.startswith('opentelemetry.sdk')]"),
    ],
    ids=["without-the-api", "without-an-sdk"],
)
def test_without_an_sdk_there_is_no_span_and_nothing_of_it_is_imported(before: str, then: str) -> None:
    script = UNTRACED.format(before=before, then=then)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "nothing\n", ran.stderr
