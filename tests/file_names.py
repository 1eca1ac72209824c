"""What the names of files may have here."""

import sys
from typing import Final

import pytest

# LC_ALL=POSIX and PYTHONUTF8=0, both at once: Python can name no file that has another character in its name.
NEEDS_MORE_THAN_ASCII: Final = pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8", reason="the names of files have ASCII alone here: unset PYTHONUTF8"
)
