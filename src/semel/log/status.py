"""The active broker of a store and those that stand by, and a planned takeover. The store is asked, and no broker: all
may be down, or out of reach."""

from semel.log.core.slots import BrokenHistory
from semel.log.replica.lease import Addresses
from semel.log.replica.resignation import StaysActive, have_resign
from semel.log.replica.status import Standby, StoreStatus, status_of
