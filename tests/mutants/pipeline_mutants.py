"""Mutants of the source and the sinks."""

from typing import Final

from saboteurs.planting import Bug

PIPELINE_MUTANTS: Final[tuple[Bug, ...]] = ()
