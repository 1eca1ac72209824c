"""semel: exactly once, from the first request to the last row."""

__version__ = "0.1.0"
