"""How a command fails: with one line and an exit code, never with a traceback."""


class Failure(Exception):
    """The command could not do what it was asked to; the message is all that the user will see."""
