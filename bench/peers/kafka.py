"""Apache Kafka as a peer: a node in KRaft combined mode, alone or one of several, fetched from Maven Central into the
cache and started with `java` directly, with the settings its own scripts and its own `server.properties` give it. It
must never be tuned, up or down, beyond what a measure names (`flush_messages`)."""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.java import Artifact, fetched, put, require_java
from bench.peers.process import (
    Broker,
    SkipReason,
    answers_metadata,
    cache_dir,
    port_is_open,
    run_in_foreground,
)
from semel.testing.ports import free_port

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
"""The distribution ships this binding beside the jars; without it Kafka would log nothing at all."""

JARS = (
    Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)

LOG4J_CONFIGURATION = """status = ERROR
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
"""

HEAP = ("-Xmx1G", "-Xms1G")
"""What kafka-server-start.sh sets."""

JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""What kafka-run-class.sh sets."""

SERVER_PROPERTIES: Mapping[str, str] = {
    # What the distribution's config/server.properties says, made fit for one node on a free port.
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class Kafka(Broker):
    name = "kafka"

    def __init__(
        self,
        *,
        port: int = 0,
        directory: Path | None = None,
        flush_messages: int | None = None,
        properties: Mapping[str, str] | None = None,
        node_id: int = 1,
    ) -> None:
        """`flush_messages=1` makes Kafka fsync before it acknowledges; by default it leaves that to the kernel."""
        super().__init__(port=port, directory=directory)
        self.node_id = node_id
        self._controller_port = free_port()
        # The nodes that elect the controller among them.
        self._voters = [self]
        self._properties = dict(properties or {})
        if flush_messages is not None:
            self._properties["log.flush.interval.messages"] = str(flush_messages)

    def join(self, nodes: Sequence[Kafka]) -> None:
        """Be one of these nodes, from the first start on."""
        self._voters = list(nodes)

    @property
    def voter(self) -> str:
        """What the storage tool has to know of each node; the last part is an id of sixteen bytes for its directory."""
        directory_id = base64.urlsafe_b64encode(b"semel-bench-%04d" % self.node_id).decode().rstrip("=")
        return f"{self.node_id}@127.0.0.1:{self._controller_port}:{directory_id}"

    @property
    def libraries(self) -> Path:
        return cache_dir() / f"kafka-{KAFKA_VERSION}" / "libs"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    def version(self) -> str:
        return f"Apache Kafka {KAFKA_VERSION}"

    def install(self) -> None:
        require_java()
        if any(self.libraries.glob("log4j-slf4j-impl-*.jar")):
            return
        with fetched(self.version(), JARS) as jars:
            put(jars, self.libraries)

    def prepare(self) -> None:
        if (self.data_directory / "meta.properties").exists():
            return
        settings = {
            **SERVER_PROPERTIES,
            "node.id": str(self.node_id),
            "controller.quorum.bootstrap.servers": ",".join(
                f"127.0.0.1:{node._controller_port}" for node in self._voters
            ),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data_directory),
            **self._properties,
        }
        configuration = self.directory / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.directory / "log4j2.properties").write_text(LOG4J_CONFIGURATION)
        cluster_id = "c2VtZWwtYmVuY2gtMDAwMQ"
        format_storage = [
            *self._java("kafka.tools.StorageTool"),
            *("format", "--initial-controllers", ",".join(node.voter for node in self._voters)),
            *("-t", cluster_id, "-c", str(configuration)),
        ]
        result = subprocess.run(format_storage, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise SkipReason(f"the storage tool of Kafka failed: {(result.stdout + result.stderr)[-500:]}")

    def command(self) -> Sequence[str]:
        main = self._java("kafka.Kafka", *HEAP, *JVM_OPTIONS)
        return [*main, str(self.directory / "server.properties")]

    def _java(self, main_class: str, *options: str) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return [require_java(), *options, log4j, "-cp", f"{self.libraries}/*", main_class]

    def is_ready(self) -> bool:
        return port_is_open(self.port) and answers_metadata(self.bootstrap)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.kafka", description="Run Apache Kafka until SIGTERM.")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--flush-messages", type=int, default=None, help="1 makes Kafka fsync before it acknowledges")
    arguments = parser.parse_args()
    return run_in_foreground(Kafka(port=arguments.port, flush_messages=arguments.flush_messages))


if __name__ == "__main__":
    sys.exit(main())
