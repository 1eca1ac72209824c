"""What the tests of this room make publishers with."""

from __future__ import annotations

from collections.abc import Callable

from semel.publish import Publisher

Publishers = Callable[..., Publisher]
"""Makes a publisher of the test's name, with any options; each is a start of the program."""

# A lost connection is made anew at once, and a topic that is not there is not waited for.
CLIENT = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20, "topic.metadata.propagation.max.ms": 500}
