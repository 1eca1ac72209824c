"""Gives the space of a part of a file back to the disk, for which Python has no call.

The part reads as zeros from then on, and the size of the file stays the same. Only the cache of a broker on a store
frees parts of files; nothing here may be called for a file that is the only copy of a record.
"""

import errno
import fcntl
import os
import struct
from typing import Final

# Linux: FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE. macOS: the command of fcntl, and its blocks.
_PUNCH_HOLE: Final = 0x01 | 0x02
_F_PUNCHHOLE: Final = 99
_HOLE: Final = struct.Struct("@IIqq")
_BLOCK_BYTES: Final = 4096


def punch_hole(descriptor: int, size: int, position: int) -> None:
    """Free a part of a file."""
    if hasattr(os, "posix_fallocate"):
        # Only a cache frees parts of files, and each start would wait for this import.
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
        if fallocate is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if fallocate(descriptor, _PUNCH_HOLE, ctypes.c_int64(position), ctypes.c_int64(size)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return
    # macOS frees only whole blocks, so the rest of the first and of the last block stays.
    begin, end = -(-position // _BLOCK_BYTES) * _BLOCK_BYTES, (position + size) // _BLOCK_BYTES * _BLOCK_BYTES
    if begin < end:
        fcntl.fcntl(descriptor, _F_PUNCHHOLE, _HOLE.pack(0, 0, begin, end - begin))
