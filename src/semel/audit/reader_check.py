"""What a reader that ignores `_spark_metadata` sees of a Spark streaming file sink: doubled rows and leftover files.

The sink is exactly-once only for readers of its log: files of an attempt that failed or was repeated stay beside the
committed ones. The log says which files are committed. To find doubled rows, this audits the rows that such a reader
sees against the committed rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semel.audit.errors import AuditFailed
from semel.audit.file_sink import METADATA, committed_files
from semel.audit.places.parquet import ParquetFiles, is_directory, rows_in, visible_files
from semel.audit.rows import Selector, Wanted
from semel.audit.run import Plan, run
from semel.audit.verdict import LISTED_DEFAULT, Verdict


@dataclass(frozen=True, slots=True)
class ReaderVerdict:
    """The committed files, and the files that a reader sees. `ids`, if it was asked for, is the audit that compares the
    files which a reader sees with the committed ones that exist.
    """

    directory: str
    has_log: bool
    committed_files: int
    committed_rows: int
    files_seen: int
    rows_seen: int
    uncommitted_count: int
    uncommitted_rows: int
    uncommitted: tuple[str, ...]
    missing_count: int
    missing: tuple[str, ...]
    ids: Verdict | None = None

    @property
    def is_clean(self) -> bool:
        return not (self.uncommitted_count or self.missing_count)

    @property
    def summary(self) -> str:
        """One line for a person."""
        parts = []
        if self.uncommitted_count:
            parts.append(
                f"a reader that ignores {METADATA} sees {_count(self.uncommitted_rows, 'row')} too many, "
                f"in {_count(self.uncommitted_count, 'file')}"
            )
        if self.ids is not None:
            [verdict] = self.ids.sinks
            parts.append(f"{verdict.doubled.rows:,} of them doubled, {verdict.foreign.rows:,} never committed")
        if self.missing_count:
            parts.append(f"committed and not there: {_count(self.missing_count, 'file')}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The whole verdict as plain values, for a program."""
        counts = {
            name: getattr(self, name)
            for name in ("directory", "has_log", "committed_files", "committed_rows", "files_seen", "rows_seen")
        }
        uncommitted = {"files": self.uncommitted_count, "rows": self.uncommitted_rows, "listed": list(self.uncommitted)}
        missing = {"files": self.missing_count, "listed": list(self.missing)}
        ids = None if self.ids is None else self.ids.as_json()
        return {"clean": self.is_clean, **counts, "uncommitted": uncommitted, "missing": missing, "ids": ids}


def check_readers(directory: Path, id: str | None = None, *, limit: int = LISTED_DEFAULT) -> ReaderVerdict:
    """Compare the committed files of a directory with all its files."""
    if not is_directory(directory):
        raise AuditFailed(f"{directory}: there is no such directory")
    visible = visible_files(directory)
    has_log = is_directory(directory / METADATA)
    committed = committed_files(directory) if has_log else visible
    # By their paths, and not by where links lead: a reader sees a file twice that a second path leads to.
    there, counted = set(visible), set(committed)
    uncommitted = [path for path in visible if path not in counted]
    missing = [path for path in committed if path not in there]
    present = [path for path in committed if path in there]
    return ReaderVerdict(
        directory=str(directory),
        has_log=has_log,
        committed_files=len(committed),
        committed_rows=rows_in(present),
        files_seen=len(visible),
        rows_seen=rows_in(visible),
        uncommitted_count=len(uncommitted),
        uncommitted_rows=rows_in(uncommitted),
        uncommitted=_shown(uncommitted, directory, limit),
        missing_count=len(missing),
        missing=_shown(missing, directory, limit),
        ids=None if id is None else _audited(present, visible, id, limit),
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what if number == 1 else what + 's'}"


def _audited(committed: Sequence[Path], visible: Sequence[Path], id: str, limit: int) -> Verdict:
    wanted = Wanted(Selector.parse(id))
    source = ParquetFiles("the committed files", committed, wanted)
    sink = ParquetFiles("all files", visible, wanted)
    return run(source, [sink], Plan(listed_max=limit), lambda what, done, total: None)


def _shown(paths: Sequence[Path], directory: Path, limit: int) -> tuple[str, ...]:
    return tuple(str(path.relative_to(directory)) for path in paths[:limit])
