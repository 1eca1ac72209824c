"""The rules of the protocol of the replicated journal, each of which can be left out of a run of its model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. A run leaves one of them out by setting it to False: then it has to fail."""

    # An answer leaves when its slot and all slots before it are created.
    answers_leave_in_order: bool = True
    # A refused create counts as its own only if the slot holds the writer's very object.
    refusals_are_compared: bool = True
    # Slot n is sent only when slot n - depth is known to be created.
    slots_wait_for_the_depth: bool = True
    # A fence has a higher epoch than all that was read.
    fences_raise_the_epoch: bool = True
    # Nobody writes before its own fence is created, whatever the lease says.
    fences_come_before_writing: bool = True
    # A fence goes into the first slot that is missing.
    fences_go_into_the_first_missing_slot: bool = True
    # A writer that has created its fence reads the floor, and begins again if the fence lies below it.
    fences_are_checked_against_the_floor: bool = True
    # What was read in a slot, or found missing, counts if the floor, read afterwards, is below.
    reads_are_checked_against_the_floor: bool = True
    # The depth - 1 slots behind a fence are closed: nobody reads them.
    closed_slots_are_skipped: bool = True
    # Garbage collection deletes no fence of the journal's history.
    fences_stay: bool = True
    # Garbage collection deletes nothing that the checkpoint does not cover.
    deletion_ends_at_the_checkpoint: bool = True
    # When the floor moves, all that its checkpoint covers is settled.
    floors_cover_what_is_settled: bool = True
    # The floor never falls.
    floors_only_rise: bool = True
    # A process that comes back with a disk keeps of it what the store holds, and no more.
    caches_are_cut: bool = True
    # What a writer answers from its memory waits for a proof that nobody had taken over when the question came.
    answers_wait_for_a_proof: bool = True
    # A proof is a look at the next slot that began after the question.
    proofs_begin_behind_the_question: bool = True
    # A slot that was missing proves nothing before all slots in front of it are settled.
    proofs_wait_for_the_slots_under_way: bool = True
    # Who takes over looks at what lies behind the first missing slot, and at the lease, before it sends its fence.
    holes_are_looked_for_before_the_fence: bool = True
    # A head says up to which slot all was known to be created when it was sent.
    heads_name_what_is_created: bool = True
    # The lease says so, too: nothing lies behind the newest slot.
    leases_name_what_is_created: bool = True
    # A fence with an older object behind it that says the fence's slot was created is not believed.
    fences_in_holes_are_refused: bool = True


ALL_RULES: Final = Rules()
RULES: Final = tuple(field.name for field in fields(Rules))
