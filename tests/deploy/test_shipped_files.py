"""What `deploy/` ships is read by the real tool where this machine has it, and keeps what it promises in any case."""

import argparse
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from semel.log.small_http import LIVE_PATH, READY_PATH
from semel.testing.served import ServedBroker
from semel.ui.cli import serve
from semel_command import semel_lines

DEPLOY: Final = Path(__file__).parent.parent.parent / "deploy"
UNITS: Final = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS: Final[list[dict[str, Any]]] = list(yaml.safe_load_all((DEPLOY / "kubernetes/semel.yml").read_text()))
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "container/compose.yml").read_text())
WORKFLOWS: Final = sorted((DEPLOY / "github").glob("*.yml"))


def accepted(program: str, *words: str | Path) -> None:
    """The program reads the files without complaint; skipped where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    ran = subprocess.run([found, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def serve_words(command: list[str]) -> None:
    """`semel serve` knows all of its flags."""
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    assert command[0] == "serve"
    parser.parse_args([re.sub(r"\$\(\w+\)", "a-pod", word) for word in command[1:]])


@pytest.mark.parametrize("unit", UNITS, ids=[path.stem for path in UNITS])
def test_systemd_reads_each_unit(unit: Path, tmp_path: Path) -> None:
    # It looks for the program as well, which is elsewhere here.
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"/opt/semel/bin/semel", "/bin/true", unit.read_text()))
    accepted("systemd-analyze", "verify", "--man=no", copy)


@pytest.mark.parametrize("unit", UNITS, ids=[path.stem for path in UNITS])
def test_a_unit_says_when_the_broker_is_ready_and_gives_it_no_more_than_it_needs(unit: Path) -> None:
    text = unit.read_text()
    for line in ("Type=notify", "UMask=0077", "StateDirectoryMode=0700", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert line in text.splitlines()
    assert "--insecure" not in text
    (command,) = re.findall(r"^ExecStart=/opt/semel/bin/semel (.+)$", text, re.MULTILINE)
    serve_words(command.split())


def test_the_containers_run_as_nobody_in_particular_and_publish_ports_on_this_machine_alone() -> None:
    image = (DEPLOY / "container/Containerfile").read_text()
    assert re.search(r"^USER 10001$", image, re.MULTILINE)
    for name, service in COMPOSE["services"].items():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ())), name
        if service.get("command", [""])[0] == "serve":
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            serve_words(service["command"])


def test_kubernetes_asks_the_broker_itself_and_always_keeps_one() -> None:
    by_kind = {manifest["kind"]: manifest for manifest in MANIFESTS}
    (broker,) = by_kind["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert broker["readinessProbe"]["httpGet"]["path"] == READY_PATH
    assert broker["livenessProbe"]["httpGet"]["path"] == broker["startupProbe"]["httpGet"]["path"] == LIVE_PATH
    assert "--insecure" not in broker["args"]
    assert broker["securityContext"]["readOnlyRootFilesystem"]
    assert by_kind["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    serve_words(broker["args"])
    names = {manifest["spec"].get("serviceName") for manifest in MANIFESTS} - {None}
    assert names <= {manifest["metadata"]["name"] for manifest in MANIFESTS if manifest["kind"] == "Service"}


def test_the_job_of_kubernetes_makes_a_user_of_the_brokers_on_the_store(tmp_path: Path) -> None:
    job = yaml.safe_load((DEPLOY / "kubernetes/first-user.yml").read_text())["spec"]["template"]["spec"]
    (stateful,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "StatefulSet"]
    (broker,) = stateful["spec"]["template"]["spec"]["containers"]
    (url,) = [word.partition("=")[2] for word in broker["args"] if word.startswith("--store=")]
    (tmp_path / "password").write_text("a long secret\n")
    here = {"/etc/semel-admin": str(tmp_path), "/work": str(tmp_path), url: f"file://{tmp_path}/store"}
    for container in (*job["initContainers"], *job["containers"]):
        assert container["image"] == broker["image"]
        semel_lines(*(re.sub("|".join(here), lambda found: here[found[0]], word) for word in container["args"]))
    with ServedBroker(tmp_path / "cache", f"--store={here[url]}") as served:
        _, user = semel_lines("users", "list", f"--bootstrap={served.bootstrap}")
    assert user.startswith("admin ")


def test_actionlint_reads_the_workflows() -> None:
    accepted("actionlint", "-shellcheck=", *WORKFLOWS)


def test_hadolint_reads_the_containerfile() -> None:
    accepted("hadolint", "--failure-threshold", "warning", DEPLOY / "container/Containerfile")


def test_the_schema_of_compose_takes_the_file() -> None:
    accepted("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "container/compose.yml")
