"""Mutants that change nothing that anybody could see, or only how long something takes. None of them is planted."""

from typing import Final, NamedTuple


class Judged(NamedTuple):
    name: str
    place: str
    """As in `Bug`."""
    piece: str
    instead: str
    why: str
    """Why nobody can notice it."""


JUDGED: Final[tuple[Judged, ...]] = (
    Judged(
        "a broker that has failed releases its lease",
        "semel.log.broker.role:Role.leave",
        "is_clean",
        "True",
        "The lease is a hint: whoever takes over fences this broker, and all that it wrote is durable by then.",
    ),
    Judged(
        "a forwarder that was stopped takes requests",
        "semel.log.broker.forwarder:Forwarder.takes",
        "self._stopped",
        "False",
        "A broker that stops asks before whether it may forward, and one that fails has no connections any more.",
    ),
    Judged(
        "a pass writes over what an attempt that was killed has left",
        "semel.log.compaction.output:SegmentOutput._opened",
        "self._file.truncate(0)",
        "pass",
        "The length of the index says where it ends: what lies behind it is read by nobody, and takes space alone.",
    ),
    Judged(
        "a broker gives way to a standby and keeps the lease",
        "semel.log.replica.membership:Membership._give_way",
        "await self._holder.release()",
        "pass",
        "The broker ends all the same, and its lease soon after it: the standby begins a moment later.",
    ),
    Judged(
        "a token that requires an extension is accepted without it",
        "semel.log.security.tokens:checked",
        '"crit" in header',
        "False",
        "PyJWT refuses such a token itself, in the versions that are locked; with an older one this check alone would.",
    ),
    Judged(
        "a first attempt saves more retries than the reserve holds",
        "semel.retries.budget:RetryBudget.earn",
        "min(self._tokens + self._share, self._reserve)",
        "self._tokens + self._share",
        "Whoever looks at the tokens fills them first, and that cuts them to the reserve.",
    ),
    Judged(
        "the retries for which there was no time wait for their next turn",
        "semel.inbox.loop:Loop._do_what_is_due",
        "self._retrying.make_due()",
        "pass",
        "Their time is ten seconds, and they have a turn every second: they are due anyway.",
    ),
    Judged(
        "a connection that has never sent a request counts as one at rest as well",
        "semel.log.places:Places.note_resting",
        "guest not in place.unheard",
        "True",
        "Those that have never sent a request go first in any case, and each at rest is asked again whether it is.",
    ),
    Judged(
        "a table that the sink makes allows nulls in its key",
        "semel.spark.tables.statements:create_table",
        "name in key",
        "False",
        "A primary key of PostgreSQL takes no null anyway, and for SQLite the sink refuses such a row itself.",
    ),
    Judged(
        "a batch that is new to the first of several sinks alone is called a duplicate",
        "semel.spark.tables.fan_out:FanOut.write",
        "Outcome.ACCEPTED in outcomes",
        "Outcome.ACCEPTED is outcomes[-1]",
        "The rows are evaluated once more for the state of the query, as if a duplicate; no sink gets them again.",
    ),
    Judged(
        "the deadline of a transaction is counted from when its id was in use last",
        "semel.log.core.transactions:Transactions.deadlines",
        "transaction.began_at_ms + self.timeout_ms(producer_id)",
        "self._owners[producer_id].changed_at_ms + self.timeout_ms(producer_id)",
        "The begin of a transaction is what notes that time, and until its end nothing else does.",
    ),
    Judged(
        "a claim that goes on with a producer id takes the doubt about it away",
        "semel.log.core.transactions:Transactions._apply_claim",
        "before != entry.producer_id",
        "True",
        "Whoever claims an id that is in doubt gets a new producer id, so no such entry is ever written.",
    ),
    Judged(
        "the number after the last of all is 2 to the power of 31",
        "semel.wire.sequences:next_of",
        "advance(last_sequence, 1)",
        "last_sequence + 1",
        "The one who asks takes the distance to another number, by the same modulus.",
    ),
    Judged(
        "a search by time looks into segments that end before the offset",
        "semel.log.storage.partition_log:PartitionLog.batch_since",
        "segment.max_timestamp < timestamp_ms or segment.next_offset <= offset",
        "segment.max_timestamp < timestamp_ms",
        "Each stretch of such a segment ends before the offset, and is left out all the same: it takes time alone.",
    ),
    Judged(
        "a segment of superseded records of transactions is left out unread",
        "semel.log.compaction.passes:Pass._survey_keys",
        "not header.is_transactional",
        "True",
        "None of its records stays, so a pass that reads it notes none of a transaction, either: it takes time alone.",
    ),
    Judged(
        "segments that changed beside a pass are replaced",
        "semel.log.storage.partition_log:PartitionLog.swap",
        "self._segments[at : at + len(old)] != old",
        "False",
        "The oldest segments go first: where one of these is gone, none is before it, and that is asked as well.",
    ),
    Judged(
        "what is durable but for one byte can be read",
        "semel.log.storage.log:Log.settle",
        "unsettled[0][0] <= position",
        "unsettled[0][0] <= position + 1",
        "Both are ends of entries, and an entry is longer than a byte.",
    ),
    Judged(
        "an entry that goes beyond its file is read",
        "semel.log.storage.journal:_entry_at",
        "offset + size > len(content)",
        "False",
        "What is there of it has another checksum.",
    ),
    Judged(
        "an id is kept for a second less",
        "semel.spark.dedup.id_judge:IdJudge.judge",
        "-(-(happened_ms[new] + self.within_ms) // 1000)",
        "(happened_ms[new] + self.within_ms) // 1000",
        "The watermark is rounded down in the same way, so an id is kept for as long as a copy may come either way.",
    ),
    Judged(
        "a run of numbers ends where they begin again at 0",
        "semel.spark.dedup.claims:_runs",
        "number[:-1] + 1 & SEQUENCE_MASK == number[1:]",
        "number[:-1] + 1 == number[1:]",
        "What follows is judged as a run of its own, with the same outcome: it takes time alone.",
    ),
    Judged(
        "an event that is an hour old to the millisecond is not held against the floor",
        "semel.inbox.claims:EventClaim.is_fresh",
        "abs(self.event_time_ms - self.claimed_at_ms) < FRESH_MS",
        "abs(self.event_time_ms - self.claimed_at_ms) <= FRESH_MS",
        "No floor is less than a day old, for claims are kept for at least that long.",
    ),
    Judged(
        "an event from before the floor keeps its claim",
        "semel.inbox.claims:_put_below",
        "connection.execute(_)",
        "pass",
        "The reaper leaves the claim of what waits in the quarantine alone, and what is done or dropped has one again.",
    ),
    Judged(
        "the retry of what still cannot be decoded asks for a claim",
        "semel.inbox.admission:Admission.retake",
        "isinstance(identity, Exception)",
        "False",
        "An error is no identity, so the claim fails in its turn, and the loop holds the message again.",
    ),
    Judged(
        "a SQLite sink does not ask for its commits to be synced",
        "semel.spark.tables.sqlite:opened",
        "connection.execute('PRAGMA synchronous = FULL')",
        "pass",
        "That is what SQLite does unless it was built otherwise.",
    ),
    Judged(
        "a limit that is just enough for everything is shared out",
        "semel.spark.source.portions:limited",
        "sum(lags.values()) <= offsets_max",
        "sum(lags.values()) < offsets_max",
        "Everybody's share is all that is there, then.",
    ),
    Judged(
        "a record that is refused at the front of its batch is put back as well",
        "semel.outbox.shard:Shard._narrow",
        "max(place, 1)",
        "place",
        "A batch of nothing is published in between, and the record is refused in the one after it.",
    ),
    Judged(
        "an entry of targets holds as many topics as there are",
        "semel.log.broker.assigned_groups:some_of",
        "topics_left -= 1 + len(partitions.by_topic())",
        "topics_left -= 1",
        "All targets are committed either way, in more entries or in fewer: a turn of the event loop takes longer.",
    ),
    Judged(
        "a group that has gone back to the classic protocol keeps the position of its last entry",
        "semel.log.broker.consumer_groups:ConsumerGroupCoordinator._note_left",
        "self._changed.pop(name, None)",
        "pass",
        "The entry of whoever joins with the new protocol next replaces it, and until then no answer asks for it.",
    ),
    Judged(
        "a standby that is behind looks for a hole",
        "semel.log.replica.membership:Membership._follow",
        "not is_behind and not is_full",
        "not is_full",
        "The next slot is there, so it finds none: that costs a call to the store.",
    ),
    Judged(
        "a standby that is behind waits before it reads on",
        "semel.log.replica.membership:Membership._follow",
        "if not is_behind: ...",
        "if True: ...",
        "It has read everything a little later, and does not claim the lease before: it takes time alone.",
    ),
    Judged(
        "a record that comes while a share fetch reads wakes nobody",
        "semel.log.broker.apis.share_fetch:_ShareFetch._wait",
        "self.moved(partition)",
        "pass",
        "The fetch is answered at the end of its wait, and the next one gets the record.",
    ),
    Judged(
        "a broker that stops releases what its members hold",
        "semel.log.broker.share_groups:ShareGroupCoordinator.end_sessions_of",
        "self._stops",
        "False",
        "Its next start would release the same records, as often delivered as they are.",
    ),
    Judged(
        "a pass over the segments begins a millisecond late",
        "semel.log.storage.scrub:Scrub.is_due",
        "now_ms >= self.began_ms + period_ms",
        "now_ms > self.began_ms + period_ms",
        "It begins a week after the one before, by a clock that nobody reads to the millisecond.",
    ),
    Judged(
        "a workflow that is cancelled keeps its token",
        "semel.steps.ledger:cancel",
        "token=workflows.c.token + 1",
        "token=workflows.c.token",
        "A holder writes only while it runs, and whoever resumes or takes it counts the token on.",
    ),
    Judged(
        "a workflow that is resumed keeps its token",
        "semel.steps.ledger:resume",
        "token=row.token + 1",
        "token=row.token",
        "It waits then, so its former holder writes nothing, and whoever takes it counts the token on.",
    ),
)
