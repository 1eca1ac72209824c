"""The errors of the source, and how Spark shows them to a user: in one line, without a traceback.

Spark puts the traceback of a Python process into its own report. If the user can mend the error, the traceback hides
the one sentence that says how.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from semel.client.errors import LogError
from semel.spark.claims import BatchRefused


class OptionRefused(LogError, ValueError):
    """An option that is unknown, does not belong here, or has a value that it cannot have."""


class DataLoss(LogError):
    """Records that the query has not read do not exist any more."""


class CheckpointNotUnderstood(LogError):
    """The checkpoint of this query was not written by this source."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Has Spark report semel's own errors without the traceback; any other error keeps it, because it is a bug.

    Spark's workers read this variable when they report an error, and end after that.
    """
    try:
        yield
    except (LogError, BatchRefused):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
