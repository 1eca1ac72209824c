"""`python -m bench.on_kafka COMMAND ...`: runs a command while there is an Apache Kafka, whose address it finds in
SEMEL_TEST_BOOTSTRAP. It must leave nothing running, however the command ends."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.peers.kafka import Kafka
from bench.peers.process import SkipReason


def main() -> int:
    # Tests write records of long ago, and Kafka looks every five minutes for what its retention makes too old.
    kafka = Kafka(properties={"log.retention.ms": "-1"})
    try:
        kafka.install()
    except SkipReason as reason:
        print(f"skipped: {reason}")
        return 0
    with kafka:
        return subprocess.call(sys.argv[1:], env={**os.environ, "SEMEL_TEST_BOOTSTRAP": kafka.bootstrap})


if __name__ == "__main__":
    sys.exit(main())
