"""The role of a broker without a store: it is active from its start to its end, because no other broker can be."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from semel.log.broker.disk_thread import DiskThread
from semel.log.broker.journal_pump import Checkpoints, DiskCheckpoints, DiskSync, Sync
from semel.log.broker.limits import NODE_ID
from semel.log.replica.lease import Lease
from semel.log.replica.membership import GiveUp, TakeAgain
from semel.log.security.listeners import Listener
from semel.log.storage.files import Files
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings


class Alone:
    """The role of a broker without a store; `semel.log.broker.role.Role` is that of a broker on a store."""

    epoch: Final = 0
    # Everything is on the disk.
    cache: Final = None
    health: Final = None
    scrubber: Final = None
    is_active: Final = True
    is_another_active: Final = False
    is_in_doubt: Final = False
    may_serve: Final = True
    has_lost_lease: Final = False
    lease_seconds: Final = 0.0
    node_id: Final = NODE_ID
    takeovers: Final = 0
    lag_bytes: Final = 0
    bytes_under_way: Final = 0

    def __init__(self, time_of_day: Callable[[], float], *, must_have_log: bool) -> None:
        self._time_of_day = time_of_day
        self._must_have_log = must_have_log

    async def open_log(self, open_files: Callable[[], Files], new_cluster_id: str, settings: LogSettings) -> Log:
        """Recover the log."""
        return self.recover(open_files(), new_cluster_id, settings, None)

    def recover(
        self, files: Files, new_cluster_id: str, settings: LogSettings, on_progress: Callable[[int], None] | None
    ) -> Log:
        """Recover the log of a directory, or begin one there if that is allowed."""
        return Log.open(
            files,
            new_cluster_id=None if self._must_have_log else new_cluster_id,
            settings=settings,
            on_progress=on_progress,
            time_of_day=self._time_of_day,
        )

    def durable(self, log: Log, thread: Callable[[str], DiskThread]) -> tuple[Sync, Checkpoints]:
        """What makes the log durable: its directory."""
        return DiskSync(log, thread("sync")), DiskCheckpoints(thread("checkpoint"))

    async def find(
        self,
        listeners: Sequence[Listener],
        become_active: Callable[[], None],
        note_active: Callable[[Lease], None],
        give_up: GiveUp,
        take_again: TakeAgain,
        resign: Callable[[bool], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Be active."""
        become_active()

    def active_at(self, listener: Listener) -> tuple[str, int]:
        """The host and port at which clients of this listener reach this broker."""
        return listener.reached_at

    def standbys_at(self, listener: Listener) -> Mapping[int, tuple[str, int]]:
        """There are none."""
        return {}

    def former_at(self, listener: Listener) -> Mapping[int, tuple[str, int]]:
        """There were none."""
        return {}

    @property
    def standby_ids(self) -> Sequence[int]:
        """There are none."""
        return ()

    def lead_no_more(self) -> None:
        """There is nobody who could."""

    async def finds_standby(self) -> bool:
        """There is none."""
        return False

    async def hand_over(self) -> None:
        """There is nobody to hand over to."""

    def stop(self) -> None:
        """There is nothing to stop."""

    async def leave(self, *, is_clean: bool, is_durable: bool) -> None:
        """There is nothing to leave."""
