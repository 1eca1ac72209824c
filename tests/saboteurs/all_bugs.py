"""The planted bugs of all rooms."""

from typing import Final

from bugs import BUGS, Bug
from http_bugs import HTTP_BUGS
from inbox_bugs import INBOX_BUGS
from outbox_bugs import OUTBOX_BUGS
from pipeline_bugs import PIPELINE_BUGS
from publish_bugs import PUBLISH_BUGS
from schema_bugs import SCHEMA_BUGS
from sink_bugs import SINK_BUGS

ALL_BUGS: Final[tuple[Bug, ...]] = (
    *BUGS,
    *PIPELINE_BUGS,
    *SINK_BUGS,
    *PUBLISH_BUGS,
    *HTTP_BUGS,
    *INBOX_BUGS,
    *OUTBOX_BUGS,
    *SCHEMA_BUGS,
)
