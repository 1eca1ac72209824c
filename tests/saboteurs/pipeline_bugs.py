"""The planted bugs of the pipeline and of its proof, as those of the broker in `bugs.py`."""

from typing import Final

from bugs import Bug

PIPELINE_BUGS: Final[tuple[Bug, ...]] = (
    # -- audit: what is lost or doubled is named, whatever else is wrong ---------------------------------------------
    Bug(
        "hashes are combined by an exclusive or",
        "semel.audit.tally",
        "    np.add.at(sums, slots, values)",
        "    np.bitwise_xor.at(sums, slots, values)",
        ("tests/audit/test_auditing.py", "-k", "pair"),
    ),
    Bug(
        "the hash has no key",
        "semel.audit.siphash",
        '    first_key, second_key = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:KEY_BYTES], "little")',
        "    first_key, second_key = 0, 0",
        ("tests/audit/test_audit_siphash.py",),
    ),
    Bug(
        "every audit has the same key",
        "semel.audit.auditing",
        "        return secrets.token_bytes(KEY_BYTES)",
        "        return bytes(KEY_BYTES)",
        ("tests/audit/test_auditing.py", "-k", "key"),
    ),
    Bug(
        "windows go by arrival",
        "semel.audit.tally",
        "np.where(times == NO_TIME, NO_TIME, times // self.window_ms * self.window_ms)",
        "np.arange(len(times)) // self.window_ms * self.window_ms",
        ("tests/audit/test_auditing.py", "-k", "order"),
    ),
    Bug(
        "a sum loses what is carried to its upper half",
        "semel.audit.tally",
        "        self.high += high + (self.low < low)",
        "        self.high += high",
        ("tests/audit/test_tally.py",),
    ),
    Bug(
        "a row that changed between two readings is taken for lost",
        "semel.audit.auditing",
        "        if not agree_in(first, again, division.chosen):",
        "        if again.grid is None:",
        ("tests/audit/test_auditing.py", "-k", "changes"),
    ),
    Bug(
        "a file counts as committed because it is there",
        "semel.audit.places.parquet",
        "    if (path / METADATA).is_dir():",
        "    if path.is_symlink():",
        ("tests/audit/test_file_sink_log.py",),
    ),
)
