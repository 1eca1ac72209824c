"""Writes the answers of an Apache Kafka: `PYTHONPATH=tests python -m bench.on_kafka python -m raw_shares.record`."""

import json
import os
from pathlib import Path
from typing import Final

from raw_shares.calls import all_answers

RECORDED: Final = Path(__file__).with_name("kafka-4.3.1.json")
# By then Apache Kafka has loaded a share partition, and stored what was acknowledged.
WAIT_MS: Final = 1_000

if __name__ == "__main__":
    answers = all_answers(os.environ["SEMEL_TEST_BOOTSTRAP"], WAIT_MS)
    lines = [f'"{seed}": [\n' + ",\n".join(map(json.dumps, told)) + "\n]" for seed, told in answers.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
