"""A TOML file with the flags of a command: each key is a flag without its dashes.

    data = "./data"
    listen = ["127.0.0.1:9092", "OUTSIDE=SASL_SSL://0.0.0.0:9094"]
    no-auto-create-topics = true

A flag on the command line replaces the one in the file. This must never accept a key or a value that the command line
would refuse.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from semel.ui.cli.errors import Failure

FLAG: Final = "--config"


def with_file(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words of a command line, preceded by those of the file that it names, if it names one."""
    file = _named_in(words)
    if file is None:
        return list(words)
    flags_given = {word.partition("=")[0] for word in words}
    flags = {option: action for action in parser._actions for option in action.option_strings if len(option) > 2}
    for option in ("--help", FLAG):
        del flags[option]
    flags = {option: action for option, action in flags.items() if action.help != argparse.SUPPRESS}
    of_file: list[str] = []
    for key, value in _read(file).items():
        flag = f"--{key}"
        if flag not in flags:
            raise Failure(f"{file}: unknown key {key!r}; there are {', '.join(one[2:] for one in flags)}")
        try:
            read = list(_words(flag, flags[flag], value))
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise Failure(f"{file}: {key}: {error}") from None
        if flag not in flags_given:
            of_file += read
    return [*of_file, *words]


def _named_in(words: Sequence[str]) -> str | None:
    """The file, if these words name one; the last one, as for every flag."""
    file = None
    for word, following in zip(words, [*words[1:], None], strict=False):
        if word == FLAG:
            # If no name follows, the parser will refuse the flag.
            file = following
        elif word.startswith(f"{FLAG}="):
            file = word.removeprefix(f"{FLAG}=")
    return file


def _read(file: str) -> Mapping[str, object]:
    import tomllib

    try:
        with open(file, "rb") as opened:
            return tomllib.load(opened)
    except (OSError, ValueError, RecursionError) as error:
        raise Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _words(flag: str, action: argparse.Action, value: object) -> Iterator[str]:
    """The words on a command line for this value; ValueError if the flag does not accept it."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError("true or false is wanted")
        if value:
            yield flag
        return
    takes_several = isinstance(action.default, list)
    if takes_several and not isinstance(value, list):
        raise ValueError("a list is wanted")
    for one in value if isinstance(value, list) and takes_several else [value]:
        wanted, name = (str, "a string") if action.type is None else (int, "a whole number")
        if not isinstance(one, wanted) or isinstance(one, bool):
            raise ValueError(f"{name} is wanted" if not takes_several else f"a list of {name[2:]}s is wanted")
        if callable(action.type):
            action.type(str(one))
        if action.choices is not None and one not in action.choices:
            raise ValueError(f"one of {', '.join(map(str, action.choices))} is wanted")
        yield f"{flag}={one}"
