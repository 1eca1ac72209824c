"""The shop, for every test of the HTTP keys."""

from conftest_http import engine, new_shop

__all__ = ["engine", "new_shop"]
