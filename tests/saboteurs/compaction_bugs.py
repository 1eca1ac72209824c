"""The planted bugs of compaction: a consumer of a compacted topic ends up with the same as of all its records."""

from typing import Final

from saboteurs.planting import Bug

COMPACTION_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "compaction drops a batch that it could not read to its end",
        "semel.log.compaction.keys:LastOffsets.leave_out",
        "self._left_out.add(base_offset)",
        "None",
        ("tests/log/compaction/test_cleaning.py",),
    ),
    Bug(
        "compaction drops what an earlier pass has cleaned, because no key of it is in the table",
        "semel.log.compaction.passes:Pass._survey_keys",
        "last_offsets.noted_from = self.cleaned_until",
        "None",
        ("tests/log/compaction/test_cleaning.py",),
    ),
    Bug(
        "compaction keeps the first record of a key",
        "semel.log.compaction.passes:Pass._note_keys",
        "offsets[key if len(key) <= PLAIN_KEY_BYTES_MAX else digest(key)] = base_offset + offset_delta",
        "offsets.setdefault(key if len(key) <= PLAIN_KEY_BYTES_MAX else digest(key), base_offset + offset_delta)",
        ("tests/log/compaction/test_cleaning.py",),
    ),
    Bug(
        "an aborted record supersedes a committed one",
        "semel.log.compaction.passes:Pass._survey_keys",
        "self._supersedes_nothing(header)",
        "header.is_control",
        ("tests/log/compaction/test_cleaning.py",),
    ),
    Bug(
        "a checkpoint names a segment whose own name may be lost",
        "semel.log.storage.partition_log:PartitionLog.swap",
        "self._segment_files.grown.add(self.directory)",
        "",
        ("tests/crash/test_compaction_crashes.py",),
    ),
    Bug(
        "what was aborted behind the end of a pass stays, and nothing says any more that it was aborted",
        "semel.log.compaction.passes:Pass._kept",
        "self._is_aborted(header)",
        "False",
        ("tests/log/compaction/test_remains.py", "-k", "no_room_to_get_that_far"),
    ),
)
