"""What the source refuses or cannot go on with, and how a user gets to see it: one line, without our traceback.

Spark puts the traceback of a Python process into its own report. For what is the user's to mend that buries the one
sentence that says how.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from semel.client.errors import LogError
from semel.spark.claims import BatchRefused


class OptionRefused(LogError, ValueError):
    """An option that is unknown, out of place, or says something that it cannot say."""


class DataLoss(LogError):
    """Records that the query has not read are not there any more."""


class CheckpointNotUnderstood(LogError):
    """The checkpoint of this query was not written by this source."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Has Spark report semel's own errors without the traceback; any other error keeps it, because it is a bug.

    Spark's workers look at this variable at the moment when they report an error, and end after that.
    """
    try:
        yield
    except (LogError, BatchRefused):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
