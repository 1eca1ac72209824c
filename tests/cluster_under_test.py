"""The cluster that tests run against through real clients: semel's own, or any that SEMEL_TEST_BOOTSTRAP names.

    SEMEL_TEST_BOOTSTRAP=127.0.0.1:9092 pytest tests/publish tests/outbox tests/inbox

holds the same promises against another one. What needs a broker of its own is skipped then.
"""

import os
from typing import Any, Final

FOREIGN_CLUSTER: Final = os.environ.get("SEMEL_TEST_BOOTSTRAP")
"""Its address; None where it is semel's own."""

# A lost connection is made anew at once, and a topic that is not there is not waited for.
CLIENT: Final[dict[str, Any]] = {
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.propagation.max.ms": 500,
}
