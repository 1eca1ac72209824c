"""The log in a store, for commands that show it, or move it from there or to there."""

from semel.log.replica.backup import BackedUp, back_up
from semel.log.replica.examination import ExaminedStore, examine_store, objects_of, slots_of
from semel.log.replica.move import Moved, move_from_store, move_to_store
from semel.log.replica.salvage import salvage_from_store
from semel.log.replica.slot import Slot, entries
