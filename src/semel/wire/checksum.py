"""CRC-32C, of batches, entries and files: the function `crc32c` of the package of that name.

When that package is imported, it looks up its own version and its command line, and for that it imports parsers of mail
and archives, which takes a tenth of a broker's start. So only its extension module is imported here, and the whole
package only if that module cannot be found. This file must never compute a checksum.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final


def _found() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    extension = PathFinder.find_spec("_crc32c", places) if places else None
    if extension is None or extension.loader is None:
        whole: Callable[..., int] = import_module("crc32c").crc32c
        return whole
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    alone: Callable[..., int] = module.crc32c
    return alone


crc32c: Final[Callable[..., int]] = _found()
