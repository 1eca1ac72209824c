"""`PYTHONPATH=tests python -m sink_kills.run`: kills the driver of a sink into MariaDB around its commits, and has the
database's own client count the rows.

A driver stages each batch as a task does, commits it, and only then notes it in its checkpoint, so that whoever comes
after a kill writes the same batch again. No Spark takes part. This must never say that all is there if a kill came
when nothing was going on: each is sent when a commit has begun, which has locked the claim
and written nothing; or when it has ended, and is not noted.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from mariadb_under_test import MariadbMissing, MariadbServer, lent_database

BATCH_ROWS = 1_000
# As long as a commit takes.
KILLED_WITHIN_SECONDS = 0.04
DRIVER = """
import sys
from pathlib import Path
import pyarrow
from pyspark.sql.types import LongType, StructField, StructType
from semel.database.engines import driver_settings
from semel.spark.tables.claims import TableClaim, judge
from semel.spark.tables.database import Staged, Target
from semel.spark.tables.mysql_rows import Sending, send_rows
from semel.spark.tables.servers import Server
from semel.spark.tables.sql_sink import database_of
from semel.spark.tables.statements import Write

url, checkpoint, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
database = database_of(url, Target("payments", "payments", "semel_batches", Write()))
schema = StructType([StructField("id", LongType())])
while True:
    number = int(checkpoint.read_text()) if checkpoint.exists() else 0
    claim = TableClaim("query", number, str(number))

    def rule(held):
        print("begun", flush=True)
        return judge("payments", held, claim, None)

    with database.connected(schema) as connected:
        connected.run("CREATE TABLE IF NOT EXISTS stage (id bigint, semel_task bigint) ENGINE=InnoDB")
        connected.run("DELETE FROM stage")
        ids = pyarrow.array(range(number * rows, (number + 1) * rows), pyarrow.int64())
        sending = Sending(driver_settings(url), Server("mysql:payments", "payments", "MariaDB"), "stage", None, {})
        count, _ = send_rows(sending, number, [pyarrow.record_batch({"id": ids})])
        staged = Staged(f"(SELECT id FROM stage WHERE semel_task = {number})", count)
        outcome = connected.commit(staged, claim, rule)
    print(outcome.value, flush=True)
    sys.stdin.readline()
    whole = checkpoint.with_suffix(".new")
    whole.write_text(str(number + 1))
    whole.replace(checkpoint)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sink_kills.run")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    try:
        server = MariadbServer()
    except MariadbMissing as missing:
        raise SystemExit(str(missing)) from None
    try:
        with lent_database(server.url()) as url, tempfile.TemporaryDirectory(prefix="semel-kills-") as directory:
            checkpoint = Path(directory, "checkpoint")
            outcomes = [killed(url, checkpoint, chance) for _ in range(arguments.kills)]
            batches = int(checkpoint.read_text()) if checkpoint.exists() else 0
            stored, distinct, greatest = counted(server.port, url.rpartition("/")[2])
    finally:
        server.stop()
    replayed = sum(outcome.count("duplicate") for outcome in outcomes)
    # The last driver may have committed a batch that its checkpoint does not know.
    expected = max(batches * BATCH_ROWS, greatest + 1)
    lost, doubled = expected - distinct, stored - distinct
    print(f"{arguments.kills} kills, seed {arguments.seed}: {batches} batches, {stored} rows")
    print(f"{lost} lost, {doubled} doubled")
    print(f"{replayed} batches were committed and not noted when the driver was killed: each was a duplicate")
    return 0 if lost == doubled == 0 else 1


def killed(url: str, checkpoint: Path, chance: random.Random) -> list[str]:
    """One driver, from its start until it is killed in the midst of a batch: what it said of its batches."""
    command = [sys.executable, "-c", DRIVER, url, str(checkpoint), str(BATCH_ROWS)]
    lines: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        for line in driver.stdout:
            lines.append(line.strip())
            has_begun = lines[-1] == "begun"
            if chance.randrange(4) == 0:
                if has_begun:
                    threading.Event().wait(chance.random() * KILLED_WITHIN_SECONDS)
                driver.send_signal(signal.SIGKILL)
                break
            if not has_begun:
                driver.stdin.write("note it\n")
        lines += [line.strip() for line in driver.stdout]
    if driver.returncode != -signal.SIGKILL:
        raise SystemExit(f"a driver ended by itself: {driver.returncode}")
    return lines


def counted(port: int, database: str) -> tuple[int, int, int]:
    """What the database's own client finds."""
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        raise SystemExit("no client of MariaDB: Debian's package mariadb-client")
    query = "SELECT count(*), count(DISTINCT id), coalesce(max(id), -1) FROM payments"
    command = [client, "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", f"--port={port}", "--user=semel"]
    said = subprocess.run([*command, "-N", "-B", "-e", query, database], capture_output=True, text=True, check=True)
    stored, distinct, greatest = map(int, said.stdout.split())
    return stored, distinct, greatest


if __name__ == "__main__":
    sys.exit(main())
