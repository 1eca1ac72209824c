"""The commands of `semel` that the pages show, as a person can paste them into a shell.

A name comes from the cluster and may be a script of the shell: it must never be more than one argument of the command.
"""

import shlex


def command(*words: str, name: str) -> str:
    """`semel` with these words and the name of a group or a transactional id."""
    # A name that begins with a hyphen would be an option.
    end_of_options = ("--",) if name.startswith("-") else ()
    return shlex.join(("semel", *words, *end_of_options, name))
