"""How a command ends before it is done: with one line or none and an exit code, never with a traceback."""


class Failure(Exception):
    """The command could not do what it was asked to; the message is all that the user will see."""

    exit_code = 1


class Fenced(Failure):
    """Another process has taken over, and this one may be started again: a supervisor tells it by the code."""

    exit_code = 3


class Ended(SystemExit):
    """Somebody has ended the command by a signal; `code` says by which."""
