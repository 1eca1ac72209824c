"""Real old librdkafka, as Debian 12's kcat and many services have it: it logs in by SCRAM in a form of its own, which
the broker takes and counts. The libraries are in old packages of confluent-kafka, which pip fetches once into `build`.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from tools.strangers import python_named

from foreign_programs import BUILD
from secured import PASSWORD, WRONG, SecuredBroker, login

PRODUCES = """
import json, sys
import confluent_kafka
settings = json.loads(sys.argv[1])
told = []
producer = confluent_kafka.Producer({**settings, "error_cb": told.append, "log_level": 0})
producer.produce("logins", b"written")
while producer.flush(0.1) and not any("uthentication" in one.str() for one in told):
    pass
print(confluent_kafka.libversion()[0], "refused" if told and len(producer) else "written")
"""
# The version of the package, which is that of the library, and the Pythons for which it was built.
OLD = {"1.9.2": "3.10", "2.3.0": "3.11", "2.6.0": "3.11"}


def library(version: str) -> list[str]:
    """The command of a Python that has this library."""
    python = python_named(OLD[version])
    if python is None:
        pytest.skip(f"no Python {OLD[version]} here")
    into = BUILD / "librdkafka" / version
    if not (into / "confluent_kafka").exists():
        command = [python, "-m", "pip", "install", "-q", "--no-deps", "--target", str(into)]
        try:
            subprocess.run([*command, f"confluent-kafka=={version}"], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as failed:
            pytest.skip(f"confluent-kafka {version} cannot be fetched: {failed.stderr.splitlines()[-1:]}")
    return ["env", f"PYTHONPATH={into}", python, "-c", PRODUCES]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", OLD)
def test_an_old_librdkafka_logs_in_with_its_nonce_twice_and_is_counted(version: str, mechanism: str) -> None:
    command = library(version)
    with SecuredBroker() as broker:
        broker.add_user("alice", PASSWORD)
        broker.create_topic("logins")

        def written(password: str) -> list[str]:
            settings = {"bootstrap.servers": broker.bootstrap, **login(mechanism, "alice", password)}
            ran = subprocess.run([*command, json.dumps(settings)], capture_output=True, text=True, check=True)
            return ran.stdout.split()

        assert written(WRONG) == [version, "refused"]
        assert broker.look(lambda running: running.metrics.repeated_nonces) == 0
        assert written(PASSWORD) == [version, "written"]
        assert broker.look(lambda running: running.metrics.repeated_nonces) > 0
        assert [record.value for record in broker.log("logins")] == [b"written"]
