"""A broker that has just become the leader, and tells a shorter log for its first answers about where the log ends."""

from __future__ import annotations

from relayed_cluster import RelayedCluster, Upstream
from semel.wire.frames import RequestHeader
from semel.wire.versions import LIST_OFFSETS


class LateLeader(RelayedCluster):
    """One broker whose log is shorter for so many answers, and then what it was before."""

    answers_left = 0
    has_been_late = False
    _true_upstream = ""

    def be_late(self, bootstrap: str, answers: int) -> None:
        """It is this broker for so many answers."""
        self._true_upstream = ":".join(map(str, self.upstream))
        self.become(bootstrap)
        self.answers_left, self.has_been_late = answers, True

    def show_ends_late(self, end: int, answers: int) -> None:
        """It says for so many answers that its logs end here."""
        self.shown_end = end
        self.answers_left, self.has_been_late = answers, True

    def answer(self, number: int, header: RequestHeader, frame: bytes, ask_upstream: Upstream) -> bytes:
        answer = super().answer(number, header, frame, ask_upstream)
        if header.api_key == LIST_OFFSETS and self.answers_left:
            self.answers_left -= 1
            if not self.answers_left:
                self.shown_end = None
                if self._true_upstream:
                    self.become(self._true_upstream)
        return answer
