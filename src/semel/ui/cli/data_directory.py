"""Checks that `--data` names a directory. The URL of a store would be taken for one, and made: `file:/srv/semel`."""

from semel.ui.cli.errors import Failure


def check_directory(text: str, remedy: str) -> None:
    """`Failure` if the text is the URL of a store; `remedy` says what to do instead."""
    if "://" in text:
        raise Failure(f"--data {text}: this is the URL of a store, and --data takes a directory; {remedy}")
