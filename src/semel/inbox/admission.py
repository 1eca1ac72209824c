"""The rules of a loop for a message: it goes to the handler, is a duplicate, or is put aside. They end no transaction.

A message that cannot be decoded or keeps failing is put aside in the transaction that claims it, so that it neither
blocks its partition nor is skipped. An event with an id that was put aside is claimed: the same event, sent again, is a
duplicate. A version that was put aside is not claimed: the versions after it are gaps, and wait in the quarantine for
it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from semel.database.clock import Clock
from semel.inbox import claims, quarantine
from semel.inbox.events import (
    BrokerCoordinates,
    HeadersUnreadable,
    IdentityIsPlace,
    Message,
    Outcome,
    Version,
    checked_id,
    checked_version,
)
from semel.inbox.quarantine import Aside, Cause, State
from semel.inbox.retries import Passing
from semel.inbox.versions import claim_version

Identity = Callable[[Message], str | UUID | Version]
"""Finds the identity of an event. An error means that the message cannot be decoded."""


class Due(NamedTuple):
    """A message and the outcome of its claim: the handler is due if the outcome is true."""

    outcome: Outcome
    message: Message


@dataclass(frozen=True, slots=True)
class Admission:
    consumer: str
    identity: Identity
    first_version: int
    passing: Passing
    clock: Clock

    def identity_of(self, message: Message) -> str | Version | Exception:
        """The identity, or the error why there is none. If the program makes the identity from the message's place,
        that is a bug in the program, and ends the loop. If the identity only looks like a place, that is the sender's
        mistake, which must not stop the loop.
        """
        if not message.are_headers_readable:
            return HeadersUnreadable()
        try:
            identity = self.identity(message)
            if isinstance(identity, Version):
                return checked_version(identity.aggregate, identity.version)
            return checked_id(identity)
        except BrokerCoordinates as error:
            if self._follows_place(message, identity):
                raise IdentityIsPlace(identity) from error
            return error
        except Exception as error:
            if self.passing(error):
                raise
            return error

    def _follows_place(self, message: Message, identity: object) -> bool:
        """Whether the same record would get another identity at another place."""
        if not isinstance(identity, str):
            return True
        elsewhere = replace(
            message, topic=f"{message.topic}-", partition=message.partition + 1, offset=message.offset + 1
        )
        try:
            return self.identity(elsewhere) != identity
        except Exception:
            return False

    def take(self, connection: Connection, message: Message, identity: str | Version) -> Outcome:
        """Claim the event. A gap, which does not close by itself, is put aside."""
        outcome = self._claim(connection, message, identity)
        if outcome is Outcome.GAP:
            return self._put(connection, message, identity, Cause.GAP, gap_reason(identity), 0)
        return outcome

    def put_aside(
        self, connection: Connection, message: Message, identity: str | Version, error: Exception, attempts: int
    ) -> Outcome:
        """Put a message aside that keeps failing. If its identity is an id, claim it, too."""
        if isinstance(identity, str):
            outcome = self._claim(connection, message, identity)
            if not outcome:
                return outcome
        return self._put(connection, message, identity, Cause.FAILED, reason_of(error), attempts)

    def put_half_done(
        self, connection: Connection, message: Message, identity: str | Version, error: Exception, attempts: int
    ) -> Outcome:
        """Put a message aside whose claim its handler has committed, before it failed."""
        return self._put(connection, message, identity, Cause.FAILED, reason_of(error), attempts)

    def put_undecodable(self, connection: Connection, message: Message, error: Exception) -> Outcome:
        return self._put(connection, message, None, Cause.UNDECODABLE, reason_of(error), 0)

    def retake(self, connection: Connection, number: int) -> Due | None:
        """Claim a due message from the quarantine. None if another loop was first, or if the message has to be held
        again."""
        if not quarantine.move(connection, number, State.DUE, State.DONE):
            return None
        event = quarantine.event_of(connection, number)
        if event is None or event.message is None:
            return None
        outcome = Outcome.ACCEPTED
        if event.message_id is not None:
            quarantine.renew_claim(connection, event, self.clock())
        else:
            identity = self.identity_of(event.message)
            if isinstance(identity, Exception):
                quarantine.hold_again(connection, number, State.DONE, reason_of(identity))
                return None
            outcome = self._claim(connection, event.message, identity)
            if outcome is Outcome.GAP:
                quarantine.hold_again(connection, number, State.DONE, gap_reason(identity))
                return None
        quarantine.forget_message(connection, number)
        return Due(outcome, event.message)

    def _claim(self, connection: Connection, message: Message, identity: str | Version) -> Outcome:
        now_ms = self.clock()
        if isinstance(identity, Version):
            return claim_version(connection, self.consumer, identity, self.first_version, now_ms)
        new = claims.claim_of(self.consumer, identity, message.timestamp_ms, now_ms)
        return claims.claim(connection, new, message)

    def _put(
        self,
        connection: Connection,
        message: Message,
        identity: str | Version | None,
        cause: Cause,
        reason: str,
        attempts: int,
    ) -> Outcome:
        subject = quarantine.subject_of_record(message) if identity is None else quarantine.subject_of(identity)
        aside = Aside(self.consumer, subject, cause, reason, self.clock(), attempts, message)
        return Outcome.QUARANTINED if quarantine.put(connection, aside) else Outcome.DUPLICATE


def reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def gap_reason(identity: str | Version) -> str:
    return f"{identity} does not follow the last version that was taken"
