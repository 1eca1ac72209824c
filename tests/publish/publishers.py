"""What the tests of this room make publishers with."""

from __future__ import annotations

from collections.abc import Callable

from semel.publish import Publisher

Publishers = Callable[..., Publisher]
"""Makes a publisher of the test's name, with any options; each is a start of the program."""
