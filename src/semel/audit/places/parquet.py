"""Parquet files as rows: those of a directory, or of a single file, on this machine.

In a directory that a streaming query of Spark wrote, only the files that its log names are committed, and only these
are read. In other directories every file is read, unless a part of its path is hidden by Spark's rule for names. Links
are followed, as Spark follows them. What cannot be listed ends the audit: it must never be left out, because other
readers may see it.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from semel.audit.errors import AuditFailed, failed
from semel.audit.file_sink import METADATA, committed_files
from semel.audit.places import BATCH_BYTES, BATCH_ROWS, PIECE_ROWS, Piece
from semel.audit.rows import Rows, Wanted

_SUFFIXES: Final = (".parquet", ".parq")
_MAGIC: Final = b"PAR1"
_DELTA_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of one file, next to each other."""

    path: str
    first: int
    end: int
    rows: int
    batch_bytes: int = BATCH_BYTES
    files: Any = None
    """The file system that has it, if it is another one than this machine's."""

    def read(self, wanted: Wanted) -> Iterator[Rows]:
        try:
            with pq.ParquetFile(self.path, filesystem=self.files) as file:
                names = file.schema_arrow.names
                for column in wanted.columns:
                    if names.count(column) != 1:
                        has = "has two columns" if column in names else "has no column"
                        raise AuditFailed(f"{self.path} {has} {column!r}: {_names(names)}")
                groups = list(range(self.first, self.end))
                count = min(max(self.batch_bytes // self._row_bytes(file.metadata, wanted), 1), BATCH_ROWS)
                for batch in file.iter_batches(count, row_groups=groups, columns=wanted.columns):
                    yield wanted.rows_of({name: batch.column(name) for name in wanted.columns})
        except (OSError, pa.ArrowException) as error:
            raise failed(self.path, error) from None

    def _row_bytes(self, metadata: Any, wanted: Wanted) -> int:
        """About how many bytes a row has in the columns that are read, in the group with the longest ones."""
        groups = [metadata.row_group(number) for number in range(self.first, self.end)]
        read = [
            number for number in range(metadata.num_columns) if metadata.schema.column(number).path in wanted.columns
        ]
        sizes = [
            sum(int(group.column(number).total_uncompressed_size) for number in read) // max(int(group.num_rows), 1)
            for group in groups
        ]
        return max(1, *sizes)


@dataclass(frozen=True)
class ParquetDirectory:
    """A directory of Parquet files, or one such file."""

    name: str
    path: Path
    wanted: Wanted
    piece_rows: int = PIECE_ROWS

    def pieces(self) -> Sequence[Piece]:
        return pieces_of(files_of(self.path), self.piece_rows)


@dataclass(frozen=True)
class ParquetFiles:
    """Exactly these files, whatever other files are beside them."""

    name: str
    files: Sequence[Path]
    wanted: Wanted

    def pieces(self) -> Sequence[Piece]:
        return pieces_of(self.files)


def files_of(path: Path) -> list[Path]:
    """The files that a reader of Spark's log sees."""
    if is_directory(path / METADATA):
        return committed_files(path)
    return visible_files(path)


def visible_files(path: Path) -> list[Path]:
    """The files that a reader without Spark's log sees."""
    mode = _mode_of(path)
    if stat.S_ISREG(mode):
        return [path]
    if not stat.S_ISDIR(mode):
        raise AuditFailed(f"{path}: there is no such file or directory")
    if is_directory(path / _DELTA_LOG):
        # It keeps files whose rows are no longer in the table. Spark refuses this, too.
        raise AuditFailed(f"{path} is a Delta table: write delta:{path}")
    try:
        return sorted(_files_below(path, ()))
    except OSError as error:
        raise _unusable(error.filename or path, error) from None


def is_directory(path: Path) -> bool:
    """Whether it is a directory; AuditFailed if nobody may look."""
    return stat.S_ISDIR(_mode_of(path))


def _mode_of(path: Path) -> int:
    """Which kind of thing it is, as the operating system says it; 0 if there is nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _files_below(directory: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """The Parquet files in the directory and in those below it. `above` are the real places of the directories above.

    Neither `glob` nor `walk` would do: they leave out what they may not list, or what a link leads to.
    """
    real = directory.resolve()
    if real in above:
        raise AuditFailed(f"{directory}: this link leads to a directory that it is in itself")
    with os.scandir(directory) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _files_below(directory / entry.name, (*above, real))
            elif Path(entry.name).suffix in _SUFFIXES:
                if stat.S_ISREG(os.stat(entry.path).st_mode):
                    yield directory / entry.name
            elif entry.is_file() and _begins_as_parquet(entry.path):
                yield directory / entry.name


def _begins_as_parquet(path: str) -> bool:
    """Spark reads files whatever their names end with, and Hive gives them no suffix."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _unusable(path: object, error: OSError | ValueError) -> AuditFailed:
    return AuditFailed(f"{path}: {getattr(error, 'strerror', None) or error}")


def _is_hidden(name: str) -> bool:
    """The directory of a partition, such as `_day=1`, is never hidden, whatever its column is called."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def rows_in(files: Iterable[Path]) -> int:
    return sum(piece.rows for piece in pieces_of(files))


def pieces_of(paths: Iterable[Path | str], piece_rows: int = PIECE_ROWS, files: Any = None) -> list[RowGroups]:
    return [piece for path in paths for piece in _pieces_of_file(path, piece_rows, files)]


def _pieces_of_file(path: Path | str, piece_rows: int, files: Any) -> Iterator[RowGroups]:
    try:
        metadata = pq.read_metadata(path, filesystem=files)
    except (OSError, pa.ArrowException) as error:
        raise failed(path, error) from None
    first, rows = 0, 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= piece_rows:
            yield RowGroups(str(path), first, group + 1, rows, files=files)
            first, rows = group + 1, 0
    if first < metadata.num_row_groups:
        yield RowGroups(str(path), first, metadata.num_row_groups, rows, files=files)


def _names(columns: Sequence[str]) -> str:
    return f"there are {', '.join(columns)}"
