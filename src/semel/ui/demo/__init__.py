"""The demo: it sends a stream of payments through a bad network, three times side by side, and then through Spark.

It uses its own directory and processes, which it removes however it ends, and touches nothing else. It must never say
that a promise held without having counted.
"""

from typing import Final

DEFAULT_SECONDS: Final = 10.0
# Without Spark people want an answer at once: with the start, the last retries and the count this makes 10 s.
DEFAULT_SECONDS_ALONE: Final = 6.0
DEFAULT_PER_SECOND: Final = 4_200
DEFAULT_REPORT: Final = "demo-report.html"


class DemoFailed(Exception):
    """The demo cannot begin or go on; the message is all that the user sees."""
