"""A model of the replicated journal: who may write which slot of the store, and what a takeover reads.

It is small enough to look at every state that there is. A few writers share one store with few slots. Each step of a
writer is a step of the model, and any of them may be the last one of its writer: that is how processes die here, or
pause. Whatever a writer has sent may land at any later time, any number of times, with or without its sender seeing the
answer. What may be deleted may be deleted at any time.

What must hold in every state: what a writer has acknowledged, with all that stands before it in its log, is the
beginning of what a recovery from the store would read now (`violation`). And where clients ask a writer for something
that it knows, such as a committed offset, its answer has all that anybody had acknowledged before the question.

Where the world allows it, objects go that nobody may delete: a person removes them, or a rule of the bucket. Then two
more things must hold: no writer becomes active without what was acknowledged before it (`served_cut`), and when the
objects are put back, all is there again. `failover.holes` has what writers do about it.

Not in the model: bodies and digests, consumers, the contents of the journal, time. The lease appears in the rule that
nobody trusts it, and as a number that it names; clocks stand still: a writer that was replaced answers as long as it
has not noticed. What a checkpoint covers is deleted at once here; a broker waits for the checkpoint behind it, so that
fewer readers have to begin again.
"""

from __future__ import annotations

from collections.abc import Iterator

from failover.holes import created_below, is_fenced_hole, removals, served_cut, with_removed
from failover.rules import ALL_RULES, Rules
from failover.states import (
    ACTIVE,
    CHECKING,
    ENTRY,
    FENCE,
    FENCED,
    FENCING,
    IDLE,
    MISSING,
    READING,
    Checkpoint,
    Lie,
    Object,
    Question,
    Size,
    UnderWay,
    World,
    Writer,
)

Steps = Iterator[tuple[str, World]]


class Protocol:
    """The steps that there are from each state."""

    def __init__(self, size: Size, rules: Rules = ALL_RULES) -> None:
        self.size = size
        self.rules = rules

    def beginning(self) -> World:
        if self.size.from_empty:
            floor = Checkpoint(0, 0, (), 0, ())
            writers = [Writer(IDLE)] * self.size.writers
        else:
            floor = Checkpoint(0, 1, (), 0, ())
            writers = [Writer(ACTIVE, epoch=1), *[Writer(IDLE)] * (self.size.writers - 1)]
        return World((None,) * self.size.slots, floor, tuple(writers))

    def steps(self, world: World) -> Steps:
        """Everything that can happen next, in words and as the state that follows. Raises Lie."""
        for number, writer in enumerate(world.writers):
            match writer.phase:
                case "idle":
                    # Writers that have not begun are all the same, so they begin in their order.
                    if number == 0 or world.writers[number - 1].phase != IDLE:
                        yield from self._begins(world, number)
                case "reading":
                    yield from self._reads(world, number, writer)
                case "fencing":
                    yield from self._fences(world, number, writer)
                case "checking":
                    yield from self._checks(world, number, writer)
                case "active":
                    yield from self._sends(world, number, writer)
                    yield from self._takes_a_checkpoint(world, number, writer)
                    yield from self._raises_the_floor(world, number, writer)
                    yield from self._learns(world, number, writer)
                    yield from self._is_asked(world, number, writer)
                    yield from self._looks(world, number, writer)
                    yield from self._answers(world, number, writer)
                    yield from self._renews_the_lease(world, number, writer)
            for slot, sent in writer.sent:
                if world.slots[slot] is None:
                    yield f"the {name_of(sent)} of writer {number} lands in slot {slot}", _with_slot(world, slot, sent)
        yield from self._deletes(world)
        if len(world.removed) < self.size.removals:
            yield from removals(world)

    # -- taking over --------------------------------------------------------------------------------------------

    def _begins(self, world: World, number: int) -> Steps:
        yield f"writer {number} starts: it reads from the floor", _with(world, number, _from(world.floor, Writer(IDLE)))
        disk = world.writers[0]
        if not self.rules.caches_are_cut and number and disk.phase in (ACTIVE, FENCED):
            kept = [slot for slot, sent in disk.sent if sent.kind != FENCE]
            if kept:
                back = Writer(READING, epoch=disk.epoch, log=disk.log, position=kept[-1] + 1, fences=disk.fences)
                yield f"writer {number} starts with the disk of writer 0, as it is", _with(world, number, back)

    def _reads(self, world: World, number: int, writer: Writer) -> Steps:
        slot = writer.position
        if slot >= self.size.slots:
            return
        found: Object | str = world.slots[slot] or MISSING
        if self.rules.reads_are_checked_against_the_floor:
            if writer.has_read is None:
                what = name_of(found) if isinstance(found, Object) else "nothing"
                yield (
                    f"writer {number} reads slot {slot}: {what}",
                    _with(world, number, writer._replace(has_read=found)),
                )
                return
            found = writer.has_read
        missing = not isinstance(found, Object)
        if world.floor.covers > slot and (self.rules.reads_are_checked_against_the_floor or missing):
            yield (
                f"writer {number} finds slot {slot} below the floor, and begins again",
                _with(world, number, _from(world.floor, writer)),
            )
        elif isinstance(found, Object):
            if found.kind == FENCE and self._is_in_a_hole(world, slot, found):
                # It ends with a line that says so.
                return
            yield f"writer {number} applies slot {slot}", _with(world, number, self._applied(writer, slot, found))
        elif self.rules.holes_are_looked_for_before_the_fence and self._is_a_hole(world, slot):
            if world.slots[slot] is not None:
                # It has come since this writer found it missing.
                again = writer._replace(has_read=None)
                yield f"writer {number} finds slot {slot} after all, and reads it again", _with(world, number, again)
            elif not world.removed:
                raise Lie(f"writer {number} takes slot {slot} for a hole, and nobody has removed anything")
        else:
            yield from self._wants_to_take_over(world, number, writer, slot)

    def _applied(self, writer: Writer, slot: int, found: Object) -> Writer:
        if found.epoch < writer.epoch:
            raise Lie(f"a reader meets epoch {found.epoch} behind epoch {writer.epoch} in slot {slot}")
        writer = writer._replace(epoch=found.epoch, has_read=None, position=slot + 1)
        if found.kind == FENCE:
            behind = slot + self.size.depth if self.rules.closed_slots_are_skipped else slot + 1
            return writer._replace(position=behind, fences=(*writer.fences, (slot, found.writer)))
        return writer._replace(log=(*writer.log, found.value))

    def _wants_to_take_over(self, world: World, number: int, writer: Writer, slot: int) -> Steps:
        if not self.rules.fences_come_before_writing:
            active = writer._replace(phase=ACTIVE, epoch=writer.epoch + 1, next_slot=slot, has_read=None)
            yield (
                f"writer {number} sees an old lease and is active",
                _with(world, number, active._replace(acknowledged=len(writer.log))),
            )
            return
        if not self.rules.fences_go_into_the_first_missing_slot:
            # Behind the last one that a listing shows.
            slot = max([slot, *(place + 1 for place in range(slot, self.size.slots) if world.slots[place])])
            if slot >= self.size.slots:
                return
        sending = (slot, self._fence_of(number, writer, slot))
        sent = writer.sent if sending in writer.sent else (*writer.sent, sending)
        yield (
            f"writer {number} sends a fence to slot {slot}",
            _with(world, number, writer._replace(phase=FENCING, fence_slot=slot, has_read=None, sent=sent)),
        )

    def _fence_of(self, number: int, writer: Writer, slot: int) -> Object:
        epoch = writer.epoch + 1 if self.rules.fences_raise_the_epoch else writer.epoch
        return Object(epoch, number, FENCE, 0, self._named(slot))

    def _named(self, created_below: int) -> int:
        """What a head says of the slots before it. Worlds in which nothing is removed have fewer states without it."""
        return created_below if self.size.removals else 0

    def _is_a_hole(self, world: World, slot: int) -> bool:
        """Whether this slot, which is missing or was a moment ago, was created once."""
        if not self.size.removals:
            return False
        far, lease = self.size.depth, world.lease if self.rules.leases_name_what_is_created else 0
        heads = self.rules.heads_name_what_is_created
        return created_below(world, far, lease, heads=heads, after=slot) > slot

    def _is_in_a_hole(self, world: World, slot: int, fence: Object) -> bool:
        """Whether objects behind this fence say that its slot was created before it."""
        return (
            self.size.removals > 0
            and self.rules.fences_in_holes_are_refused
            and is_fenced_hole(world, self.size.depth, slot, fence, heads=self.rules.heads_name_what_is_created)
        )

    def _renews_the_lease(self, world: World, number: int, writer: Writer) -> Steps:
        """Not any more once another writer has claimed it, as it does before it looks for holes and sends its fence."""
        claims = [sent for other in world.writers for _, sent in other.sent if sent.kind == FENCE]
        is_claimed = any(sent.epoch > writer.epoch for sent in claims)
        if self.size.removals and writer.position > world.lease and not is_claimed:
            yield f"writer {number} renews the lease", world._replace(lease=writer.position)

    def _fences(self, world: World, number: int, writer: Writer) -> Steps:
        slot, fence = writer.fence_slot, self._fence_in(writer)
        if world.slots[slot] not in (None, fence):
            reading = writer._replace(phase=READING, position=slot, fence_slot=0)
            yield f"writer {number} hears that slot {slot} is taken, and reads it", _with(world, number, reading)
            return
        checking = writer._replace(
            phase=CHECKING, epoch=fence.epoch, fences=(*writer.fences, (slot, number)), has_read=None
        )
        if not self.rules.fences_are_checked_against_the_floor:
            checking = self._active(checking)
        yield (
            f"writer {number} knows that its fence is in slot {slot}",
            _with(_with_slot(world, slot, fence), number, checking),
        )

    def _fence_in(self, writer: Writer) -> Object:
        """The fence that it has sent last."""
        return next(sent for slot, sent in reversed(writer.sent) if (slot, sent.kind) == (writer.fence_slot, FENCE))

    def _checks(self, world: World, number: int, writer: Writer) -> Steps:
        if world.floor.covers > writer.fence_slot:
            yield (
                f"writer {number} finds its fence below the floor, and begins again",
                _with(world, number, _from(world.floor, writer)),
            )
        elif not self._is_in_a_hole(world, writer.fence_slot, self._fence_in(writer)):
            yield (
                f"writer {number} finds its fence above the floor: it is active",
                _with(world, number, self._active(writer)),
            )

    def _active(self, writer: Writer) -> Writer:
        """It may write behind the slots that its fence closes, and serves what it has read."""
        first = writer.fence_slot + self.size.depth
        return writer._replace(phase=ACTIVE, position=first, next_slot=first, acknowledged=len(writer.log))

    # -- writing ------------------------------------------------------------------------------------------------

    def _has_room(self, writer: Writer) -> bool:
        depth = self.size.depth if self.rules.slots_wait_for_the_depth else self.size.depth + 1
        return writer.next_slot < self.size.slots and len(writer.under_way) < depth

    def _sends(self, world: World, number: int, writer: Writer) -> Steps:
        if not self._has_room(writer) or writer.entries == self.size.entries:
            return
        label = (number + 1) * 10 + writer.entries
        grown = writer._replace(log=(*writer.log, label), entries=writer.entries + 1)
        entry = Object(writer.epoch, number, ENTRY, label, self._named(writer.position))
        yield (
            f"writer {number} sends entry {label} to slot {writer.next_slot}",
            _with(world, number, _sent(grown, entry)),
        )

    def _takes_a_checkpoint(self, world: World, number: int, writer: Writer) -> Steps:
        covers = writer.next_slot
        if writer.checkpoints == self.size.checkpoints or covers <= world.floor.covers or not writer.log:
            return
        taken = Checkpoint(covers, writer.epoch, writer.log, covers, writer.fences)
        yield (
            f"writer {number} takes a checkpoint of the slots below {covers}",
            _with(world, number, writer._replace(checkpoints=writer.checkpoints + 1, taken=taken)),
        )

    def _raises_the_floor(self, world: World, number: int, writer: Writer) -> Steps:
        taken = writer.taken
        if taken is None or (self.rules.floors_cover_what_is_settled and writer.position < taken.covers):
            return
        rises = taken.covers > world.floor.covers
        if rises or (not self.rules.floors_only_rise and taken != world.floor):
            yield f"writer {number} moves the floor to slot {taken.covers}", world._replace(floor=taken)

    def _learns(self, world: World, number: int, writer: Writer) -> Steps:
        """What became of its creates. No answer, or one that leaves it unsure, is no step at all."""
        for place, (slot, sent, settled) in enumerate(writer.under_way):
            if settled:
                continue
            lying = world.slots[slot]
            if lying is None or lying == sent or not self.rules.refusals_are_compared:
                under_way = list(writer.under_way)
                under_way[place] = UnderWay(slot, sent, True)
                settled_writer = self._answered(writer._replace(under_way=tuple(under_way)))
                yield (
                    f"writer {number} knows that slot {slot} is created",
                    _with(_with_slot(world, slot, lying or sent), number, settled_writer),
                )
            elif lying.epoch < writer.epoch:
                raise Lie(f"writer {number} of epoch {writer.epoch} meets epoch {lying.epoch} in slot {slot}")
            else:
                yield from self._ends(world, number, writer, slot)

    def _ends(self, world: World, number: int, writer: Writer, slot: int) -> Steps:
        dead = writer._replace(phase=FENCED, under_way=(), taken=None, question=None, proof=None, questions=0)
        yield f"writer {number} finds slot {slot} taken: it is fenced, and ends", _with(world, number, dead)

    def _answered(self, writer: Writer) -> Writer:
        """The answers leave that may."""
        acknowledged, position = writer.acknowledged, writer.position
        under_way = list(writer.under_way)
        if not self.rules.answers_leave_in_order:
            for waiting in under_way:
                if waiting.settled:
                    acknowledged = max(acknowledged, writer.log.index(waiting.object.value) + 1)
        while under_way and under_way[0].settled:
            done = under_way.pop(0)
            position = done.slot + 1
            acknowledged = max(acknowledged, writer.log.index(done.object.value) + 1)
        return writer._replace(acknowledged=acknowledged, position=position, under_way=tuple(under_way))

    # -- answering from memory ----------------------------------------------------------------------------------

    def _is_asked(self, world: World, number: int, writer: Writer) -> Steps:
        if writer.question is not None or writer.questions == self.size.questions:
            return
        newest = max((each.log[: each.acknowledged] for each in world.writers), key=len)
        is_outdated = writer.log[: writer.acknowledged][: len(newest)] != newest
        if is_outdated or self.size.all_questions:
            asked = writer._replace(question=Question(writer.next_slot, is_outdated), questions=writer.questions + 1)
            yield f"writer {number} is asked what it knows", _with(world, number, asked)

    def _looks(self, world: World, number: int, writer: Writer) -> Steps:
        """It looks at the slot that was the next one when the look began; it may have sent that one since."""
        if self.rules.proofs_begin_behind_the_question and writer.question is None:
            return
        if not self.size.questions or writer.proof is not None or not self.rules.answers_wait_for_a_proof:
            return
        first = writer.next_slot if writer.question is None else writer.question.slot
        for slot in range(first, min(writer.next_slot + 1, self.size.slots)):
            if world.slots[slot] is None:
                yield (
                    f"writer {number} looks for a proof, and finds slot {slot} missing",
                    _with(world, number, writer._replace(proof=slot)),
                )
            elif slot < writer.next_slot:
                yield (
                    f"writer {number} looks for a proof, and finds slot {slot}, which it has sent",
                    _with(world, number, writer._replace(proof=slot + 1)),
                )
            else:
                yield from self._ends(world, number, writer, slot)

    def _answers(self, world: World, number: int, writer: Writer) -> Steps:
        question = writer.question
        if question is None or not self._is_proved(writer, question):
            return
        answered = writer._replace(question=None, proof=None, has_lied=question.is_outdated)
        yield f"writer {number} answers", _with(world, number, answered)

    def _is_proved(self, writer: Writer, question: Question) -> bool:
        if not self.rules.answers_wait_for_a_proof or writer.position > question.slot:
            # A slot that was sent after the question, and is settled, proves as much as a look.
            return True
        if writer.proof is None:
            return False
        return writer.position >= writer.proof or not self.rules.proofs_wait_for_the_slots_under_way

    # -- clearing up --------------------------------------------------------------------------------------------

    def _deletes(self, world: World) -> Steps:
        covers = world.floor.covers
        if not covers:
            return
        end = covers if self.rules.deletion_ends_at_the_checkpoint else covers + 1
        for slot, lying in enumerate(world.slots[:end]):
            if lying is None:
                continue
            # A fence that landed late in an empty slot belongs to no history.
            if self.rules.fences_stay and lying.kind == FENCE and (slot, lying.writer) in world.floor.fences:
                continue
            yield f"the {name_of(lying)} in slot {slot} is deleted", _with_slot(world, slot, None)

    # -- what must hold -----------------------------------------------------------------------------------------

    def recovered(self, world: World) -> tuple[int, ...]:
        """The log that a recovery from the store would have now, if what was removed is put back."""
        world = with_removed(world)
        reader = _from(world.floor, Writer(READING))
        while reader.position < self.size.slots and (found := world.slots[reader.position]) is not None:
            reader = self._applied(reader, reader.position, found)
        return reader.log

    def violation(self, world: World) -> str:
        """What is wrong with this state; nothing if all is well."""
        try:
            recovered = self.recovered(world)
        except Lie as lie:
            return str(lie)
        if len(set(recovered)) != len(recovered):
            return f"a recovery reads {_shown(recovered)}: an entry twice"
        epochs = [writer.epoch for writer in world.writers if writer.phase == ACTIVE]
        if len(set(epochs)) != len(epochs):
            return "two writers are active in one epoch"
        for number, writer in enumerate(world.writers):
            if writer.has_lied:
                return f"writer {number} answers without what was acknowledged before it was asked"
            acknowledged = writer.log[: writer.acknowledged]
            if recovered[: len(acknowledged)] != acknowledged:
                return f"writer {number} acknowledged {_shown(acknowledged)}, a recovery reads {_shown(recovered)}"
            if self.size.removals and (cut := served_cut(world, number)):
                return cut
            reads = writer.phase in (READING, FENCING) and self.rules.reads_are_checked_against_the_floor
            # What lands late where something was removed is read; the next slot shows that it does not belong there.
            if reads and not self.size.removals and recovered[: len(writer.log)] != writer.log:
                return f"writer {number} has read {_shown(writer.log)}, a recovery reads {_shown(recovered)}"
        return ""


def _from(floor: Checkpoint, writer: Writer) -> Writer:
    """A reader that begins with the checkpoint that the floor names."""
    return Writer(
        READING,
        epoch=floor.epoch,
        log=floor.log,
        position=floor.read_on,
        fences=floor.fences,
        sent=writer.sent,
        entries=writer.entries,
        checkpoints=writer.checkpoints,
    )


def _sent(writer: Writer, sending: Object) -> Writer:
    slot = writer.next_slot
    return writer._replace(
        next_slot=slot + 1,
        under_way=(*writer.under_way, UnderWay(slot, sending, False)),
        sent=(*writer.sent, (slot, sending)),
    )


def _with(world: World, number: int, writer: Writer) -> World:
    return world._replace(writers=(*world.writers[:number], writer, *world.writers[number + 1 :]))


def _with_slot(world: World, slot: int, lying: Object | None) -> World:
    if world.slots[slot] == lying:
        return world
    return world._replace(slots=(*world.slots[:slot], lying, *world.slots[slot + 1 :]))


def name_of(lying: Object) -> str:
    if lying.kind == ENTRY:
        return f"entry {lying.value}"
    return f"{lying.kind} of epoch {lying.epoch}"


def _shown(log: tuple[int, ...]) -> str:
    return f"[{' '.join(map(str, log))}]"
