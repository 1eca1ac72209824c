"""How a command ends before it is done: with one line or none and an exit code, never with a traceback."""


class Failure(Exception):
    """The command could not do what it was asked to; the message is all that the user will see."""


class Ended(SystemExit):
    """Somebody has ended the command by a signal; `code` says by which."""
