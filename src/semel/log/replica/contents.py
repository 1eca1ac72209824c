"""Where a store has the bytes of a log's files: each file is a row of extents, and an object holds many of them.

A checkpoint names the extents of all files. The next one keeps the extents that it can, and adds extents for the rest.
So a growing file is uploaded once, and the tails of many files share an object. If less than half of an object is still
needed, that part is uploaded again and the object is given up. Many small extents in a row are also uploaded again, as
one extent, because a reader needs a request for each. Nothing here may read or write a store.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from semel.log.storage.checkpoint import Content, last_segments
from semel.log.storage.segment import Proven, Segment, Stretch, place_of

# The folder of the objects.
SEGMENTS: Final = "segments"
# Larger objects would take more memory, because some are in memory at once; smaller ones would need more requests.
OBJECT_BYTES_MAX: Final = 8 * 1024 * 1024
# Neighbours become one extent if there are 16 of them, and each is smaller than one of these sizes.
MERGED_AT_ONCE: Final = 16
SMALL_BYTES: Final = (4 * 1024, 32 * 1024, 256 * 1024)


class Extent(NamedTuple):
    """A part of a file, and its place in an object."""

    position: int
    size: int
    key: str
    # The offset in the object.
    place: int
    digest: str


class Contents(NamedTuple):
    """The extents and objects that a checkpoint names."""

    # By the path of the file; extents of one file never overlap.
    files: dict[str, list[Extent]]
    # By key: how many bytes the object has.
    objects: dict[str, int]
    # By the path of each file that grows: how much of it the store has. The record of the contents is without these,
    # because the checkpoint has them in those of the segments.
    ends: Mapping[str, Proven] = MappingProxyType({})

    def to_record(self) -> dict[str, Any]:
        """The contents, as values that JSON can hold."""
        number_of = {key: number for number, key in enumerate(self.objects)}
        files = {
            path: [[extent.position, extent.size, number_of[extent.key], extent.place, extent.digest] for extent in row]
            for path, row in self.files.items()
        }
        return {"files": files, "objects": [list(item) for item in self.objects.items()]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Contents":
        """The contents from a result of `to_record`."""
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


def contents_in(content: Content) -> Contents:
    """The contents that a checkpoint in a store names."""
    contents = Contents.from_record(content[0]["contents"])
    directories = {place_of(path): path.rpartition("/")[0] for path in contents.files}
    segments = (
        Segment.from_record(directories[topic, index], record)
        for topic, index, record in last_segments(content)
        if (topic, index) in directories
    )
    return contents._replace(ends={segment.path: segment.whole for segment in segments})


def size_of(row: Iterable[Extent]) -> int:
    """How many bytes of a file these extents have, from its beginning to the first gap."""
    size = 0
    for extent in sorted(row):
        if extent.position > size:
            break
        size = extent.position + extent.size
    return size


def proven_of(known: Contents, segment: Segment) -> Proven | None:
    """How much of a segment the store has, if what was written after that can be verified."""
    size = size_of(known.files.get(segment.path, ()))
    if not size:
        return Proven(0, segment.base_offset, 0)
    if size >= segment.size:
        return segment.whole
    end = known.ends.get(segment.path)
    return end if end is not None and end.size == size else None


def without(known: Contents, keys: Collection[str]) -> Contents:
    """The contents without what is in these objects."""
    if not keys:
        return known
    files = {path: [extent for extent in row if extent.key not in keys] for path, row in known.files.items()}
    return Contents(files, {key: size for key, size in known.objects.items() if key not in keys})


def kept(known: Contents, sizes: Mapping[str, int], unreadable: Collection[str] = ()) -> Contents:
    """The extents that the next checkpoint can keep, if its files have these sizes. Extents that cannot be read are
    kept.
    """
    inside = {
        path: [extent for extent in known.files.get(path, ()) if extent.position + extent.size <= size]
        for path, size in sizes.items()
    }
    stay = {path: _large_or_few(row, unreadable) for path, row in inside.items()}
    needed: Counter[str] = Counter()
    for row in stay.values():
        for extent in row:
            needed[extent.key] += extent.size
    objects = {
        key: size
        for key, size in known.objects.items()
        if key in needed and (2 * needed[key] >= size or key in unreadable)
    }
    return Contents({path: [extent for extent in row if extent.key in objects] for path, row in stay.items()}, objects)


def _large_or_few(row: list[Extent], unreadable: Collection[str]) -> list[Extent]:
    """The extents of a file without those that will be merged."""
    # Each group is an extent, or many that become one.
    groups = [[extent] for extent in sorted(row)]
    for small_bytes in SMALL_BYTES:
        numbers: list[int] = []
        number, end = 0, -1
        for group in groups:
            is_small = _size(group) < small_bytes and group[0].key not in unreadable
            number += not is_small or group[0].position != end
            numbers.append(number)
            # An extent that is not small forms its own group.
            end = group[-1].position + group[-1].size if is_small else -1
        runs = groupby(zip(numbers, groups, strict=True), lambda one: one[0])
        groups = [group for _, run in runs for group in _merged([group for _, group in run])]
    return [group[0] for group in groups if len(group) == 1]


def _merged(run: list[list[Extent]]) -> list[list[Extent]]:
    """The same neighbours; if there are many, the last ones are merged."""
    for first in range(len(run) - MERGED_AT_ONCE + 1):
        sizes = [_size(group) for group in run[first:]]
        # A merged extent at least doubles each time: otherwise it would be uploaded again for every few bytes.
        if 2 * max(sizes) <= sum(sizes):
            return [*run[:first], [extent for group in run[first:] for extent in group]]
    return run


def _size(group: list[Extent]) -> int:
    return sum(extent.size for extent in group)


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
    """The content of each object: the stretches one after the other, cut when an object is full."""
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
    """Add an object that holds these stretches, one after the other."""
    place = 0
    for stretch, digest in zip(stretches, digests, strict=True):
        row = contents.files.setdefault(stretch.path, [])
        row.append(Extent(stretch.position, stretch.size, key, place, digest))
        place += stretch.size
    contents.objects[key] = place
