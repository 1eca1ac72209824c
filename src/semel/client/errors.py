"""The errors between a client and a cluster, each with a message of one line.

A user sees these in the middle of Spark's own report, so the message alone has to say what to do. They can be pickled,
because tasks run in other processes. No client raises them while a retry may still mend the problem.
"""


class LogError(Exception):
    """The base of these errors."""


class SettingsRefused(LogError, ValueError):
    """An option that does not exist, contradicts another one, or is set by semel itself."""


class Unreachable(LogError):
    """No broker answered before the deadline."""


class AuthenticationFailed(LogError):
    """The brokers do not accept our login or our rights, or we do not trust their certificate."""


class RefusedByBroker(LogError):
    """A broker answered with an error that no retry will mend; `code` is the protocol's number for it."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Fenced(LogError):
    """Another producer has claimed our transactional id, or the broker has aborted our transaction."""


class UnknownTopic(LogError):
    """There is no such topic, or no such partition of it."""


class TopicRecreated(LogError):
    """The topic was deleted and another one has its name: its offsets mean other records."""


class CorruptRecords(LogError):
    """A broker sent bytes that are not valid record batches."""


class OffsetOutOfRange(LogError):
    """The offset does not exist: records were deleted, or the log was truncated."""

    def __init__(self, message: str, offset: int = -1, log_start: int = -1, log_end: int = -1) -> None:
        super().__init__(message, offset, log_start, log_end)
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end

    def __str__(self) -> str:
        return str(self.args[0])
