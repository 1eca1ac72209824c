"""One PostgreSQL for all trials, in a process of its own: it prints its URL, and stops when its input ends.

Whoever forks the trials must not have imported semel, and so cannot start it.
"""

import sys

from semel.testing.postgres import PostgresMissing, PostgresServer

if __name__ == "__main__":
    try:
        server = PostgresServer(hears_interrupts=False)
    except PostgresMissing as missing:
        sys.exit(str(missing))
    try:
        print(server.url(), flush=True)
        sys.stdin.read()
    finally:
        server.stop()
