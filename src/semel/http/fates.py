"""What becomes of an effect and its answer, by what the handler answered.

Pure. An answer that says nothing of the effect must never be kept: it would be repeated to a client that has meanwhile
logged in, or waited as it was told to, and the key would be lost to it.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

from semel.http.answers import Headers


class Fate(Enum):
    """What becomes of an effect and its answer."""

    KEPT = "both commit"
    UNDONE = "the effect is rolled back and the answer kept: a refusal has no effect"
    FORGOTTEN = "the effect is rolled back and the answer not kept: the next try executes"


Commits: TypeAlias = Callable[[int], bool | Fate]

# "Send this request there": it was not executed, and has to be free to be sent under its key.
_ELSEWHERE: Final = frozenset({307, 308})
# Who asks, by which way, in which form, and when: all of them may be better when the request comes again. 401 and 407:
# log in; 403: not you; 405, 411, 413, 414 and 415: not in this form; 406, 412, 417, 426, 428 and 431: another header;
# 408, 425 and 429: another time; 421: another connection; 423: somebody else has locked it.
_NOT_OF_THE_EFFECT: Final = frozenset(
    {401, 403, 405, 406, 407, 408, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426, 428, 429, 431}
)


def commits_success(status: int) -> bool:
    return status < 400


def fate_of(status: int, headers: Headers, commits: Commits) -> Fate:
    """A Fate that the application names counts; of its yes and no, only what is said of the effect."""
    if status >= 500 or status in _ELSEWHERE:
        return Fate.FORGOTTEN
    wish = commits(status)
    if isinstance(wish, Fate):
        return wish
    if status in _NOT_OF_THE_EFFECT or _says_come_again(status, headers):
        return Fate.FORGOTTEN
    return Fate.KEPT if wish else Fate.UNDONE


def _says_come_again(status: int, headers: Headers) -> bool:
    """A refusal for now. With 202 or 303 the same header says when there is more to see."""
    return status >= 400 and any(name == b"retry-after" for name, _ in headers)
