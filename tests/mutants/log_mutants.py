"""Mutants of the broker's rules, its groups, transactions, limits and administration."""

from typing import Final

from saboteurs.planting import Bug

LOG_MUTANTS: Final[tuple[Bug, ...]] = ()
