"""Who has not installed what this room needs is told so in one line."""

from __future__ import annotations

import subprocess
import sys


def test_a_machine_without_the_client_is_told_what_to_install() -> None:
    program = "import sys; sys.modules['confluent_kafka'] = None\nimport semel.publish"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: semel.publish needs confluent-kafka, which is missing: pip install 'semel[app]'"
    )
