"""The inside of a broker, as far as its doubles in `semel.testing` reach into it."""

from semel.log.broker.apis import APIS
from semel.log.broker.apis.create_topics import create
from semel.log.broker.exchange import Buffer, Exchange
from semel.log.broker.refusal import refusal
from semel.log.core.batch_checks import check_sent
from semel.log.core.entries import GroupConfigsChanged, GroupDeleted, QuotasChanged
from semel.log.replica.lease import LEASE_KEY
from semel.log.storage.files import NotHere
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Stretch
