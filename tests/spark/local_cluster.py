"""A standalone Spark cluster of a master and two workers on this machine, from the jars in PySpark's own wheel.

A job is submitted to it, or a Spark Connect server is, with a Python of one's choice for all that is not the program
itself. This module must never let a process outlive its `with` block.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyspark
from driver_process import ProcessTree

from fast_spark import fast_java
from semel.spark.java import find_java, java_environment

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
# Errors, and what says where a service is to be found.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_OUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy.master
logger.deploy.level = info
logger.worker.name = org.apache.spark.deploy.worker
logger.worker.level = info
logger.connect.name = org.apache.spark.sql.connect.service
logger.connect.level = info
"""


class LocalCluster:
    """As long as the `with` block lasts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._services = contextlib.ExitStack()
        logging = directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        self._java = fast_java()["SPARK_SUBMIT_OPTS"]
        options = f"{self._java} -Dlog4j2.configurationFile={logging.as_uri()}"
        variables: dict[str, str | None] = {
            **os.environ,
            **java_environment(find_java()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_JAVA_OPTS": options,
            "SPARK_SUBMIT_OPTS": options,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        self._environment = {name: value for name, value in variables.items() if value is not None}
        self._master = ""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            here = ("--host", "127.0.0.1", "--webui-port", "0")
            master = started.enter_context(self._service("master.Master", *here, "--port", "0"))
            self._master = master.wait_for_line("Starting Spark master at ").rpartition(" ")[2]
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / "work"))
            workers = [
                started.enter_context(self._service("worker.Worker", *here, *size, self._master))
                for _ in range(WORKERS)
            ]
            for worker in workers:
                worker.wait_for_line("Successfully registered with master")
            self._services = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._services.close()

    def run(self, *submitted: object, **environment: str) -> list[str]:
        """What a job prints, which is submitted with these options."""
        with self._submitted(submitted, environment) as job:
            return job.finish()

    @contextlib.contextmanager
    def connect_server(self, **environment: str) -> Iterator[str]:
        """The address of a Spark Connect server whose jobs run on this cluster."""
        options = (
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--conf", "spark.connect.grpc.binding.port=0"),
        )
        with self._submitted(options, environment) as server:
            started = server.wait_for_line("Spark Connect server started at")
            yield f"sc://localhost:{re.findall(r'[0-9]+', started)[-1]}"

    def _service(self, name: str, *options: str) -> ProcessTree:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
        # Not for the environment of all: Spark takes its Connect server for such a service as well.
        return ProcessTree(command, {**self._environment, "SPARK_DAEMON_MEMORY": "256m"})

    def _submitted(self, options: tuple[object, ...], environment: dict[str, str]) -> ProcessTree:
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "768m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(
                [self._java, shlex.quote(f"-Djava.io.tmpdir={self._directory}")]
            ),
            "spark.ui.enabled": "false",
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self._master]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        return ProcessTree([*command, *map(str, options)], self._environment | environment)
