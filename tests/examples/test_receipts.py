"""The example names the one call that may happen twice: a mail takes no key, and each doubt is counted where Prometheus
looks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

# In a process of its own: the service makes its engine when it is imported.
PROGRAM: Final = """
from fastapi.testclient import TestClient
from payments import service, tables

tables.make(service.engine, service.engine)
sent = []

def die_behind_the_mail(payment):
    sent.append(payment)
    if len(sent) == 1:
        raise ConnectionError

service.send_mail = die_behind_the_mail
headers = {"X-API-Key": "anna", "Idempotency-Key": "r-1"}
with TestClient(service.app, headers=headers, raise_server_exceptions=False) as client:
    print([client.post("/receipts", json={"payment": "p-1"}).status_code for _ in range(3)], sent)
    shown = client.get("/metrics/").text.splitlines()
    print([line for line in shown if line.startswith("semel_http_steps_in_doubt_total")])
"""


def test_a_receipt_that_may_have_been_mailed_twice_is_counted(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]),
        "PAYMENTS_DATABASE": f"sqlite:///{tmp_path}/payments.db",
    }
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == [
        "[500, 202, 202] ['p-1', 'p-1']",
        "['semel_http_steps_in_doubt_total{step=\"mail\"} 1.0']",
    ], ran.stderr
