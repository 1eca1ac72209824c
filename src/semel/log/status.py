"""The active broker of a store and those that stand by: the store is asked, because all brokers may be down."""

from semel.log.core.slots import BrokenHistory
from semel.log.replica.lease import Addresses
from semel.log.replica.status import Standby, StoreStatus, status_of

__all__ = ["Addresses", "BrokenHistory", "Standby", "StoreStatus", "status_of"]
