"""Mutants of the looks for damage, of repairs, and of what both note."""

from typing import Final

from saboteurs.planting import Bug

_SCRUB: Final = "tests/log/broker/test_scrub.py"
_OBJECTS: Final = "tests/log/replica/test_object_scrub.py"
_REPAIR: Final = "tests/log/storage/test_repair.py"
_SCRUBBER: Final = "semel.log.broker.scrubber:Scrubber"
_OBJECT_SCRUBBER: Final = "semel.log.replica.object_scrub:ObjectScrubber"
_ASIDE: Final = "semel.log.storage.repair:SettingAside"

SCRUB_MUTANTS: Final[tuple[Bug, ...]] = (
    Bug(
        "a pass passes over segments of other partitions",
        f"{_SCRUBBER}._next_of",
        "(*partition.name, segment.base_offset) > self._scrub.place",
        "segment.base_offset > self._scrub.place[2]",
        (_SCRUB, "-k", "all_partitions"),
    ),
    Bug(
        "a damaged segment is told of with each pass",
        f"{_SCRUBBER}._mark",
        "segment.path not in damaged",
        "True",
        (_SCRUB, "-k", "all_others_are_served"),
    ),
    Bug(
        "a pass notes its place at the end alone",
        f"{_SCRUBBER}.look",
        "self._scrub = self._scrub._replace(place=(*partition.name, segment.base_offset))\nself._note()",
        "self._scrub = self._scrub._replace(place=(*partition.name, segment.base_offset))",
        (_SCRUB, "-k", "no_segment_again"),
        20.0,
    ),
    Bug(
        "the end of an older note stays behind the new one",
        "semel.log.storage.scrub:write",
        "file.truncate(len(content))",
        "pass",
        (_SCRUB, "-k", "longer"),
    ),
    Bug(
        "a note of another form keeps the broker from starting",
        "semel.log.storage.scrub:read",
        "except (ValueError, LookupError, TypeError): return None",
        "except ValueError: return None",
        (_SCRUB, "-k", "cannot_be_read"),
    ),
    Bug(
        "a second repair forgets what the first one has given up",
        "semel.log.storage.verification:Verification.passed",
        'list(record["given_up"])',
        "[]",
        (_SCRUB, "-k", "second_repair"),
    ),
    Bug(
        "the failures of two objects are added up",
        f"{_OBJECT_SCRUBBER}._checked",
        "count + 1 if key == before else 1",
        "count + 1",
        (_OBJECTS, "-k", "another_one"),
    ),
    Bug(
        "an object that was given up is told of as damaged",
        f"{_OBJECT_SCRUBBER}._judge",
        "checked.trouble and checked.key in self._checkpoints.contents.objects",
        "checked.trouble",
        (_OBJECTS, "-k", "gives_up"),
    ),
    Bug(
        "an object that can be read again counts as damaged",
        f"{_OBJECT_SCRUBBER}._judge",
        "self._found.discard(checked.key)",
        "pass",
        (_OBJECTS, "-k", "read_again"),
    ),
    # -- repairs ------------------------------------------------------------------------------------------------------
    Bug(
        "an owner that a repair makes up has the first epoch",
        f"{_ASIDE}.adoption",
        "0 if producer is None else epoch_of(producer)",
        "0",
        (_REPAIR, "-k", "epoch"),
    ),
    Bug(
        "a repair takes a producer from its transactional id",
        f"{_ASIDE}.adoption",
        "transactions.owner(producer_id) is not None",
        "False",
        (_REPAIR, "-k", "epoch"),
    ),
    Bug(
        "a segment that a repair keeps is not synced",
        f"{_ASIDE}._segment_of",
        "copy.sync()",
        "pass",
        (_REPAIR, "-k", "loss_of_power"),
    ),
    Bug(
        "the name of a segment that a repair keeps is not synced",
        f"{_ASIDE}.keep",
        'self._files.sync_directory(segment.path.rpartition("/")[0])',
        "pass",
        (_REPAIR, "-k", "loss_of_power"),
    ),
    Bug(
        "the copy of an entry that a repair skips is not synced",
        f"{_ASIDE}._keep",
        "file.sync()",
        "pass",
        (_REPAIR, "-k", "loss_of_power"),
    ),
    Bug(
        "marks of deletion stay for ever in a segment that a repair keeps",
        f"{_ASIDE}._segment_of",
        "kept.index, kept.horizon_ms = None, damaged.horizon_ms",
        "kept.index = None",
        (_REPAIR, "-k", "is_compacted"),
    ),
)
