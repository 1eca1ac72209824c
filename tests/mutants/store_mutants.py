"""Mutants of the store, standbys and takeovers, and of files."""

from typing import Final

from saboteurs.planting import Bug

STORE_MUTANTS: Final[tuple[Bug, ...]] = ()
