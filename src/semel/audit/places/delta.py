"""A Delta table as rows: the Parquet files of one version of it, read without Spark.

Tables with features that change what a file means, such as deletion vectors and mapped columns, are refused: reading
their files as they are would count rows that are no longer in the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from pyarrow.fs import PyFileSystem

from semel.audit.errors import AuditFailed, failed, meant
from semel.audit.places import Piece
from semel.audit.places.parquet import pieces_of
from semel.audit.rows import Wanted

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler
except ImportError:
    raise AuditFailed("Delta tables need the package deltalake: pip install 'semel[delta]'") from None


@dataclass(frozen=True)
class DeltaPlace:
    """A table in a directory or an object store, as it is now or as of a version."""

    name: str
    path: str
    """A path of this machine, or a URL."""
    options: Mapping[str, str] = field(repr=False)
    """What the library needs to reach an object store, besides the environment."""
    version: int | None
    wanted: Wanted

    def pieces(self) -> Sequence[Piece]:
        is_store = "://" in self.path
        # The library follows links, and decodes a literal `%20` in what it finds.
        real = self.path if is_store else str(Path(self.path).resolve())
        if not is_store and unquote(real) != real:
            raise AuditFailed(f"{self.name}: deltalake would read {real} as another path, {unquote(real)}: link to it")
        if not is_store and not Path(real, "_delta_log").is_dir():
            near = [path.parent.name for path in Path(real).parent.glob("*/_delta_log")]
            raise AuditFailed(f"{self.name}: there is no Delta table in {real}{meant(Path(real).name, near)}")
        try:
            table = DeltaTable(self.path, version=self.version, storage_options={**self.options})
            # This refuses tables with features that only some readers understand.
            files = table.to_pyarrow_dataset().files
            partitioned = set(table.metadata().partition_columns)
        except (DeltaError, OSError, ValueError) as error:
            raise failed(self.name, error) from None
        for column in self.wanted.columns:
            if column in partitioned:
                raise AuditFailed(
                    f"{self.name}: {column!r} partitions the table, so it is in none of its files: take another column"
                )
        if is_store:
            return pieces_of(files, files=PyFileSystem(DeltaStorageHandler(self.path, {**self.options})))
        return pieces_of(Path(self.path, file) for file in files)
