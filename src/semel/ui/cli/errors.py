"""The exceptions that end a command early: with one line or none and an exit code, never with a traceback."""


class Failure(Exception):
    """The command failed; the user sees only the message."""

    exit_code = 1


class Fenced(Failure):
    """Another process has taken over. The exit code tells a supervisor that it may start this one again."""

    exit_code = 3


class Ended(SystemExit):
    """A signal has ended the command; the exit code says which, as in a shell."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
