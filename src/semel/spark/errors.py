"""The one sentence of an error that says what went wrong.

Spark wraps an error of Python into a hundred lines: the traceback of the process that raised it, those of the
processes that passed it on, and Java's own. This module only reads such a text; it must never change what Spark raises
or prints.
"""

from __future__ import annotations

import logging
import re
import sys
from types import TracebackType
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_TRACEBACK: Final = "Traceback (most recent call last):"
# The last line of a traceback: it is not indented as its other lines are, and begins with the name of a class.
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
# Spark's own words around an error that a source or a sink in Python raised.
_PASSED_ON: Final = re.compile(r" perform \w+: [\w.]+: (.+)")
_STREAM_FAILED: Final = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ")
_SQL_STATE: Final = re.compile(r"( SQLSTATE: \w+)+\s*$")
# A sentence of semel that Spark's own `raise_error` says.
_SAID_BY_SPARK: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+)")
# What follows describes the query, and not the error.
_QUERY: Final = "\n=== Streaming Query ==="


def error_of(error: BaseException) -> str:
    """The sentence that says what went wrong, of an error that Spark raised, such as a `StreamingQueryException`.

    If Python raised the error, in a sink, a source or a task, it is the message of that error; otherwise it is the
    first line of the text.
    """
    text = str(error).partition(_QUERY)[0]
    if said := _SAID_BY_SPARK.search(text):
        sentence = said[1]
    elif _TRACEBACK in text and (raised := _RAISED.search(text.rpartition(_TRACEBACK)[2])):
        sentence = raised[1]
    elif passed_on := _PASSED_ON.search(text):
        sentence = passed_on[1]
    else:
        sentence = _STREAM_FAILED.sub("", text.strip()).partition("\n")[0]
    return _SQL_STATE.sub("", sentence).strip()


def end_with_the_sentence() -> None:
    """Has a program that ends by an error of Spark's log the sentence, below what Python prints."""
    before = sys.excepthook
    if getattr(before, "__module__", None) == __name__:
        return

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        before(kind, error, traceback)
        if kind.__module__.startswith(("pyspark.", "py4j.")):
            _LOG.error("semel: %s", error_of(error))

    sys.excepthook = hook
