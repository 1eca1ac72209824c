"""Mutants of the store, standbys and takeovers, and of files."""

from typing import Final

from saboteurs.planting import Bug

_CHECKPOINTS: Final = "tests/replica/test_store_checkpoints.py"
_CLAIMING: Final = "tests/replica/test_lease_claims.py"
_EVERY_API: Final = "tests/broker/apis/test_standby_of_every_api.py"
_LEASE: Final = "tests/replica/test_lease.py"
_STARTS: Final = "tests/replica/test_store_starts.py"

STORE_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- standbys and the lease ---------------------------------------------------------------------------------------
    Bug(
        "a standby answers where a partition ends, a moment late",
        "semel.broker.standby:RULES",
        "versions.LIST_OFFSETS: Rule(Here.NOT_LEADER)",
        "versions.LIST_OFFSETS: Rule(Here.READS)",
        (_EVERY_API,),
    ),
    Bug(
        "a standby answers what a group has committed, a moment late",
        "semel.broker.standby:RULES",
        "versions.OFFSET_FETCH: Rule(Here.NOT_COORDINATOR)",
        "versions.OFFSET_FETCH: Rule(Here.READS)",
        (_EVERY_API,),
    ),
    Bug(
        "a standby replies to acks=0",
        "semel.broker.standby:_error_of",
        "api_key == versions.PRODUCE and request.acks == 0",
        "False",
        (_EVERY_API,),
    ),
    Bug(
        "an active broker without a lease says that there are no groups",
        "semel.broker.standby:_error_of",
        "here is Here.LISTS_NOTHING and stands_by",
        "here is Here.LISTS_NOTHING",
        (_EVERY_API,),
    ),
    Bug(
        "a lease that is claimed by the broker that has released it counts as released",
        "semel.replica.lease:LeaseHolder.claim",
        "is_released=False",
        "",
        (_LEASE,),
    ),
    Bug(
        "an active broker ends because somebody has deleted its lease",
        "semel.replica.lease:LeaseHolder.renew",
        "self._version = None\nreturn await self._put(now)",
        "return False",
        (_LEASE,),
    ),
    Bug(
        "a standby that is behind claims the lease",
        "semel.replica.membership:Membership._follow",
        "watch.is_over and not is_behind and not is_full",
        "watch.is_over and not is_full",
        (_CLAIMING,),
    ),
    Bug(
        "a standby that has no room claims the lease again and again",
        "semel.replica.membership:Membership._follow",
        "watch.is_over and not is_behind and not is_full",
        "watch.is_over and not is_behind",
        (_CLAIMING,),
    ),
    # -- checkpoints and starts ---------------------------------------------------------------------------------------
    Bug(
        "a standby that was overtaken ends as damaged over what lies in a deleted slot",
        "semel.replica.reader:SlotReader.read_on",
        "await answered(self._verify)",
        "pass",
        (_STARTS,),
    ),
    Bug(
        "a standby adopts the floor of a checkpoint that is gone",
        "semel.replica.checkpoints:StoreCheckpoints.follow",
        "return",
        "pass",
        (_CHECKPOINTS,),
    ),
    Bug(
        "the cache of a store that was moved to a shorter address is refused",
        "semel.storage.cache:mark_as_cache",
        "mark.truncate(len(content))",
        "pass",
        ("tests/storage/test_cache_mark.py",),
    ),
    # -- the store ----------------------------------------------------------------------------------------------------
    Bug(
        "an object that was deleted from a directory comes back after a loss of power",
        "semel.store.directory:DirectoryStore.delete",
        "self._sync_folder(path.parent)",
        "pass",
        ("tests/store/test_directory.py",),
    ),
    # -- elsewhere ----------------------------------------------------------------------------------------------------
    Bug(
        "a row whose epoch no producer can have makes a claim",
        "semel.spark.dedup.sequence_judge:SequenceJudge._claims",
        "(epoch <= EPOCH_MAX)",
        "True",
        ("tests/spark/dedup/test_sequence_judge.py",),
    ),
)
