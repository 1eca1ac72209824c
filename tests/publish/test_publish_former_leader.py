"""A broker that led the cursor topic and does not know yet that it does no more: what it hides is published once."""

from __future__ import annotations

import pytest
from publishers import Publishers, outcome_in_the_end

from committed_records import committed_values
from relayed_cluster import RelayedCluster, Upstream
from semel.publish import Receipt, Record
from semel.wire import fetch, fetch_client
from semel.wire.frames import SIZE_BYTES, RequestHeader
from semel.wire.versions import END_TXN, FETCH, INIT_PRODUCER_ID, PRODUCE

# A start writes the cursor and the end of its transaction, and so does each number.
OFFSETS_OF_A_COMMIT = 2
_BATCH_HEAD_BYTES = 12


class FormerLeader(RelayedCluster):
    """Shows every log as it was up to an offset, from the next claim of a name on. Who writes hears where the leader
    is: a write waits for all replicas, and only the true leader has them."""

    shown_from_the_next_claim_on: int | None = None
    # How many writes it takes until readers hear where the leader is, too.
    writes_to_pass = 0

    def answer(self, number: int, header: RequestHeader, frame: bytes, ask_upstream: Upstream) -> bytes:
        if header.api_key == PRODUCE:
            self.writes_to_pass -= 1
            if self.writes_to_pass < 0:
                self.shown_end = None
        if header.api_key == INIT_PRODUCER_ID:
            self.answers_to_lose[END_TXN] = 0
            self.shown_end, self.shown_from_the_next_claim_on = self.shown_from_the_next_claim_on, None
        if header.api_key == FETCH and self.shown_end is not None:
            return self._older_records(header, frame, ask_upstream(frame), self.shown_end)
        return super().answer(number, header, frame, ask_upstream)

    def _older_records(self, header: RequestHeader, frame: bytes, answer: bytes, end: int) -> bytes:
        (topic,) = fetch.decode_request(frame[header.body :], header.api_version).topics
        found = fetch_client.decode_response(header.api_version, answer[SIZE_BYTES:])
        shown = found._replace(
            high_watermark=end, last_stable_offset=end, records=[_below(bytes(b"".join(found.records)), end)]
        )
        topics = [(topic.name, topic.topic_id, [shown])]
        return b"".join(fetch.encode_response(header.api_version, header.correlation_id, 0, 0, topics))


def _below(batches: bytes, end: int) -> bytes:
    """The batches that begin before an offset."""
    at = 0
    while at < len(batches) and int.from_bytes(batches[at : at + 8]) < end:
        at += _BATCH_HEAD_BYTES + int.from_bytes(batches[at + 8 : at + _BATCH_HEAD_BYTES])
    return batches[:at]


def numbered(topic: str, number: int) -> Record:
    return Record(topic, value=b"%d" % number, partition=0)


@pytest.mark.parametrize("commits_shown", [0, 1, 2])
def test_a_cursor_that_a_former_leader_hides_from_a_start_is_found_below_the_note_of_the_start(
    publishers: Publishers, bootstrap: str, topic: str, commits_shown: int
) -> None:
    with publishers() as earlier:
        for number in (0, 1):
            earlier.publish(number, numbered(topic, number))
    with FormerLeader(bootstrap) as cluster:
        publisher = publishers(bootstrap=cluster.bootstrap)
        cluster.shown_from_the_next_claim_on = commits_shown * OFFSETS_OF_A_COMMIT
        assert publisher.last() == 1
        assert publisher.publish(1, numbered(topic, 1)) is Receipt.DUPLICATE
        assert publisher.publish(2, numbered(topic, 2)) is Receipt.ACCEPTED
    assert committed_values(bootstrap, topic) == [b"0", b"1", b"2"]


def test_a_former_leader_that_still_hides_the_cursor_behind_the_note_is_waited_for(
    publishers: Publishers, bootstrap: str, topic: str
) -> None:
    with publishers() as earlier:
        earlier.publish(0, numbered(topic, 0))
    with FormerLeader(bootstrap) as cluster:
        cluster.shown_from_the_next_claim_on = OFFSETS_OF_A_COMMIT
        cluster.writes_to_pass = 1
        assert publishers(bootstrap=cluster.bootstrap).publish(0, numbered(topic, 0)) is Receipt.DUPLICATE
    assert committed_values(bootstrap, topic) == [b"0"]


def test_a_commit_without_an_answer_that_a_former_leader_hides_is_not_made_again(
    publishers: Publishers, bootstrap: str, topic: str
) -> None:
    with FormerLeader(bootstrap) as cluster:
        publisher = publishers(bootstrap=cluster.bootstrap, timeout_seconds=3.0)
        outcome_in_the_end(publisher, 0, numbered(topic, 0))
        cluster.answers_to_lose[END_TXN] = 1_000_000
        cluster.shown_from_the_next_claim_on = 2 * OFFSETS_OF_A_COMMIT
        for number in (1, 2):
            outcome_in_the_end(publisher, number, numbered(topic, number))
        publisher.close()
    assert committed_values(bootstrap, topic) == [b"0", b"1", b"2"]
