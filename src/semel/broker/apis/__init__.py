"""One file for each API of the protocol, and the table that leads to them.

A handler gets the request's body, decides with the help of the log, and answers through the exchange. It runs on the
event loop and must not wait for anything.
"""

from typing import TYPE_CHECKING, Final

from semel.broker.apis import api_versions, fetch, init_producer_id, metadata, produce
from semel.wire import versions

if TYPE_CHECKING:
    from semel.broker.connection import Handler

HANDLERS: Final[dict[int, "Handler"]] = {
    versions.PRODUCE: produce.handle,
    versions.FETCH: fetch.handle,
    versions.METADATA: metadata.handle,
    versions.API_VERSIONS: api_versions.handle,
    versions.INIT_PRODUCER_ID: init_producer_id.handle,
}
