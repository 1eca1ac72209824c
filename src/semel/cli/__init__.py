"""The command line. Each command lives in a file of its own, which is imported only when the command is used."""

import sys


def main() -> None:
    """What the `semel` script calls."""
    from semel.cli.serve import serve

    if sys.argv[1:2] != ["serve"]:
        print("semel: the only command is serve", file=sys.stderr)
        sys.exit(2)
    serve(sys.argv[2:])
