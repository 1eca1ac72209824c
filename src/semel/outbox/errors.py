"""The errors of the outbox, each with a message of one line that says what to do."""


class OutboxError(Exception):
    """The base of this package's errors."""


class MessageRefused(OutboxError, ValueError):
    """The message cannot become a record, or the database would not keep it as it is; nothing was added."""


class RelayRefused(OutboxError, ValueError):
    """A relay cannot begin with these settings."""


class RelayFenced(OutboxError):
    """Another relay serves this outbox now; this one publishes no more."""

    def __init__(self, shard: int, owner_name: str | None) -> None:
        super().__init__(
            f"shard {shard} of the outbox was taken over by another relay ({owner_name or 'unknown'}), and this one "
            "publishes no more: run one relay for each database"
        )
        self.shard = shard
        self.owner_name = owner_name


class OutOfStep(OutboxError):
    """The log and the database do not have the same batches; to continue would lose messages, or send them twice."""


class RelayFailed(OutboxError):
    """The broker refuses something that waiting does not mend, or the relay has waited long enough."""


class Unsettled(OutboxError, ValueError):
    """What was asked for is not possible in the present state: the message is not in the quarantine, or a batch may be
    in the log or not."""
