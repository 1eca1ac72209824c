"""Where the bytes of a log's files lie in a store: each file is a row of extents, and an object holds many of them.

A checkpoint names the extents of all files. The next one keeps what it can of them, and adds extents for the rest: so
what grows is uploaded once, tails of many files share an object, and an object of which less than half is still needed
is given up, with the rest of it uploaded again. Nothing here may read or write a store.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from semel.storage.segment import Stretch

# Some of them are in memory at once; and each costs a request.
OBJECT_BYTES_MAX: Final = 8 * 1024 * 1024


class Extent(NamedTuple):
    """A part of a file, and where it lies."""

    position: int
    size: int
    key: str
    # Where in the object.
    place: int
    digest: str


class Contents(NamedTuple):
    """What a checkpoint names."""

    # By the path of the file; extents of one file never overlap.
    files: dict[str, list[Extent]]
    # By key: how many bytes the object has.
    objects: dict[str, int]

    def to_record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        number_of = {key: number for number, key in enumerate(self.objects)}
        files = {
            path: [[extent.position, extent.size, number_of[extent.key], extent.place, extent.digest] for extent in row]
            for path, row in self.files.items()
        }
        return {"files": files, "objects": [list(item) for item in self.objects.items()]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Contents":
        """What `to_record` wrote down."""
        objects = {str(key): int(size) for key, size in record["objects"]}
        keys = list(objects)
        files = {
            str(path): [
                Extent(position, size, keys[number], place, digest) for position, size, number, place, digest in row
            ]
            for path, row in record["files"].items()
        }
        return cls(files, objects)


NOTHING: Final = Contents({}, {})


def kept(known: Contents, sizes: Mapping[str, int]) -> Contents:
    """What the next checkpoint can name as it is, if its files have these sizes."""
    inside = {
        path: [extent for extent in known.files.get(path, ()) if extent.position + extent.size <= size]
        for path, size in sizes.items()
    }
    needed: Counter[str] = Counter()
    for row in inside.values():
        for extent in row:
            needed[extent.key] += extent.size
    objects = {key: size for key, size in known.objects.items() if key in needed and 2 * needed[key] >= size}
    return Contents(
        {path: [extent for extent in row if extent.key in objects] for path, row in inside.items()}, objects
    )


def missing(known: Contents, sizes: Mapping[str, int]) -> Iterator[Stretch]:
    """The parts of the files that have no extent yet."""
    for path, size in sizes.items():
        end = 0
        for extent in sorted(known.files.get(path, ())):
            if extent.position > end:
                yield Stretch(path, end, extent.position - end)
            end = extent.position + extent.size
        if size > end:
            yield Stretch(path, end, size - end)


def packed(stretches: Iterable[Stretch], bytes_max: int = OBJECT_BYTES_MAX) -> Iterator[list[Stretch]]:
    """What goes into each object: the stretches one after the other, cut where an object is full."""
    batch: list[Stretch] = []
    bytes_left = bytes_max
    for path, position, size in stretches:
        while size:
            part = min(size, bytes_left)
            batch.append(Stretch(path, position, part))
            position, size, bytes_left = position + part, size - part, bytes_left - part
            if not bytes_left:
                yield batch
                batch, bytes_left = [], bytes_max
    if batch:
        yield batch


def with_object(contents: Contents, key: str, stretches: Iterable[Stretch], digests: Iterable[str]) -> None:
    """Name an object that holds these stretches, one after the other."""
    place = 0
    for stretch, digest in zip(stretches, digests, strict=True):
        row = contents.files.setdefault(stretch.path, [])
        row.append(Extent(stretch.position, stretch.size, key, place, digest))
        place += stretch.size
    contents.objects[key] = place
