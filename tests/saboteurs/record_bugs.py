"""The planted bugs of the records that are walked before they are stored, and of readers that come to a bad batch."""

from typing import Final

from saboteurs.planting import Bug

RECORD_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "records of a batch are stored unread",
        "semel.log.core.batch_checks:check_records",
        "header.attributes & CODEC_MASK",
        "True",
        ("tests/log/core/test_record_walk.py", "tests/log/broker/test_bad_input.py"),
    ),
    Bug(
        "of records alike, only the first one's offset is looked at",
        "semel.log.core.record_walk:_alike",
        "column != expected[:most]",
        "False",
        ("tests/log/core/test_record_walk.py",),
    ),
    Bug(
        "of records alike, only the first one's lengths are looked at",
        "semel.log.core.record_walk:_alike",
        "column != same * most",
        "False",
        ("tests/log/core/test_record_walk.py",),
    ),
    Bug(
        "a client says for itself how long its records are kept",
        "semel.log.core.batch_checks:check_records",
        "header.max_timestamp != latest_ms",
        "False",
        ("tests/log/core/test_record_walk.py", "tests/log/broker/test_bad_input.py"),
    ),
    Bug(
        "a reader of columns passes over a bad batch by itself",
        "semel.client.arrow.slices:_rows_in",
        "report(BadBatch(region.header, str(error)))",
        "None",
        ("tests/client/test_bad_batches.py",),
    ),
    Bug(
        "a reader of records passes over a bad batch by itself",
        "semel.client.aborted:batches",
        "report(BadBatch(header, str(error)))",
        "None",
        ("tests/client/test_bad_batches.py",),
    ),
    Bug(
        "an audit that passes over a batch calls its topic clean",
        "semel.audit.places.topic:_Records.read",
        "[{}] * len(bad)",
        "[]",
        ("tests/audit/test_bad_batches_audited.py",),
    ),
)
