"""Mutants of the application pieces, and of the audit."""

from typing import Final

from saboteurs.planting import Bug

KIT_MUTANTS: Final[tuple[Bug, ...]] = ()
