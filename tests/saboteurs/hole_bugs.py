"""Planted in what tells a slot that was lost from one that was never created: each lets a broker serve a log that is
cut, or takes its work from the object that is put back."""

from __future__ import annotations

from typing import Final

from saboteurs.planting import Bug

_HOLES: Final = "tests/log/replica/test_holes.py"
_EACH_SLOT: Final = f"{_HOLES}::test_every_slot_that_is_gone_is_named_nothing_is_written_and_put_back_all_is_there"
_IN_TURN: Final = f"{_EACH_SLOT}[young-killed]"

HOLE_BUGS: Final = (
    Bug(
        "a hole is fenced before it is looked at",
        "semel.log.replica.holes:find_hole",
        "evidence.created_below <= slot",
        "True",
        (_IN_TURN,),
    ),
    Bug(
        "a hole is noticed only when the lease is claimed already",
        "semel.log.replica.membership:Membership._look_for_hole",
        "may_claim and not self._reader.gives_up(hole)",
        "False",
        (_IN_TURN,),
    ),
    Bug(
        "the lease says nothing of the newest slot",
        "semel.log.replica.holes:_evidence",
        "lease is not None",
        "False",
        (f"{_HOLES}::test_the_newest_slot_that_is_gone_is_known_from_the_lease",),
    ),
    Bug(
        "a long row of slots that are gone is not seen over",
        "semel.log.replica.holes:_look_behind",
        "(number := slot_of(key)) is not None",
        "(number := slot_of(key)) is None",
        (f"{_HOLES}::test_a_row_of_slots_that_are_gone_is_noticed_however_long_it_is",),
    ),
    Bug(
        "a broker that claims the lease forgets what it knew",
        "semel.log.replica.membership:Membership._look_for_hole",
        "self._holder.note_created(lease.created_below)",
        "self._holder.note_created(0)",
        (f"{_HOLES}::test_what_the_lease_knew_is_handed_on_by_a_broker_that_died_while_it_took_over",),
    ),
    Bug(
        "a slot counts as created as soon as it is sent",
        "semel.log.replica.writer:SlotWriter._settle",
        "self._history.note_created(next(iter(self._under_way), self._history.next_slot))",
        "self._history.note_created(self._history.next_slot + 4)",
        (f"{_HOLES}::test_slots_that_were_under_way_when_their_broker_died_are_no_hole",),
    ),
    Bug(
        "a fence that replaced a slot is believed",
        "semel.log.replica.reader:SlotReader._check_fence",
        "replaced is not None",
        "False",
        (f"{_HOLES}::test_a_fence_that_replaced_what_was_acknowledged_is_not_believed",),
    ),
    Bug(
        "who gives up a hole does not fence the broker that writes after it",
        "semel.log.replica.reader:SlotReader._fence_rest",
        "await create_surely(self._store, key_of(fence.slot), encode_head(fence))",
        "True",
        (f"{_HOLES}::test_the_broker_that_still_writes_behind_a_hole_is_fenced_before_the_hole_is_given_up",),
    ),
    Bug(
        "what was given up is deleted",
        "semel.log.replica.checkpoints:StoreCheckpoints._waste",
        "not history.gave_up(slot)",
        "True",
        (f"{_HOLES}::test_who_is_sure_takes_over_at_the_hole_and_what_was_behind_it_stays_in_the_store",),
    ),
    Bug(
        "a flipped bit in the floor is believed",
        "semel.log.replica.record:decode_record",
        "fields.pop(_DIGEST) != _digest(key, fields)",
        "not fields.pop(_DIGEST)",
        ("tests/damaged_stores/test_damaged_stores.py", "tests/log/replica/test_lease.py"),
    ),
    Bug(
        "a start does not look whether the objects with records are there",
        "semel.log.replica.restore:restore",
        "await _lost_object(store, contents, accepted_losses)",
        '""',
        ("tests/log/replica/test_store_starts.py::test_a_damaged_or_lost_object_is_named_and_refused",),
    ),
    Bug(
        "a format that was lost is created again",
        "semel.log.replica.membership:_cluster_of",
        "not await answered(lambda: _has_objects(store))",
        "True",
        ("tests/damaged_stores/test_damaged_stores.py",),
    ),
    Bug(
        "the fence behind a hole does not follow the fence before it",
        "semel.log.replica.holes:fence_behind",
        "(slot - 1, slot - DEPTH)",
        "(slot - 1,)",
        ("tests/log/replica/test_holes.py",),
    ),
    Bug(
        "a broker that has claimed the lease fences in a hole that has come since",
        "semel.log.replica.reader:SlotReader.take_over",
        "not self.gives_up(hole)",
        "False",
        ("tests/log/replica/test_holes.py", "-k", "come_since"),
    ),
)
