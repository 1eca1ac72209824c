"""One server of each kind for all trials, in a process of its own: it prints their URLs, and stops when its input ends.

Whoever forks the trials must not have imported semel, and so cannot start them. Where there is no server, its URL is
empty.
"""

import contextlib
import sys

from mariadb_under_test import MariadbMissing, MariadbServer
from semel.testing.postgres import PostgresMissing, PostgresServer

if __name__ == "__main__":
    with contextlib.ExitStack() as servers:
        for start in (lambda: PostgresServer(hears_interrupts=False), MariadbServer):
            try:
                server = start()
            except (PostgresMissing, MariadbMissing) as why:
                print(why, file=sys.stderr)
                print(flush=True)
            else:
                servers.callback(server.stop)
                print(server.url(), flush=True)
        sys.stdin.read()
