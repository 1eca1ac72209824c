"""Promises broken one at a time in all rooms: the suite must notice each of them.

A mutant is a planted bug like those of `saboteurs`, which holds those that would do most harm and which every change
runs; these are many more, and `make mutants` plants them. `JUDGED` holds those that nobody can notice, each with its
reason.
"""

from typing import Final

from mutants.core_mutants import CORE_MUTANTS
from mutants.door_mutants import DOOR_MUTANTS
from mutants.file_mutants import FILE_MUTANTS
from mutants.judged import JUDGED
from mutants.kit_mutants import KIT_MUTANTS
from mutants.log_mutants import LOG_MUTANTS
from mutants.outbox_mutants import OUTBOX_MUTANTS
from mutants.pipeline_mutants import PIPELINE_MUTANTS
from mutants.scrub_mutants import SCRUB_MUTANTS
from mutants.share_mutants import SHARE_MUTANTS
from mutants.step_mutants import STEP_MUTANTS
from mutants.store_mutants import STORE_MUTANTS
from saboteurs.planting import Bug

ALL_MUTANTS: Final[tuple[Bug, ...]] = (
    *LOG_MUTANTS,
    *CORE_MUTANTS,
    *STORE_MUTANTS,
    *FILE_MUTANTS,
    *PIPELINE_MUTANTS,
    *KIT_MUTANTS,
    *OUTBOX_MUTANTS,
    *DOOR_MUTANTS,
    *SHARE_MUTANTS,
    *SCRUB_MUTANTS,
    *STEP_MUTANTS,
)

__all__ = ["ALL_MUTANTS", "JUDGED"]
