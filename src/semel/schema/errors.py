"""Why tables are refused, each in one line that says what to do."""


class SchemaDiffers(RuntimeError):
    """The tables of this database are not those that this semel works with."""


class UnknownRoom(ValueError):
    """There is no room of that name that has tables."""
