"""What holds for every command: a help text with an example, one line for an error, and never a traceback."""

import importlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import semel as semel_package
from forked import SECONDS_MAX
from semel.ui.cli import COMMANDS, GROUPS
from semel_command import SEMEL, semel, semel_lines, started


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_help_text_with_an_example(command: str) -> None:
    text = "\n".join(semel_lines(command, "--help"))
    assert f"usage: semel {command}" in text
    assert importlib.import_module(f"semel.ui.cli.{command}").EXAMPLE in text


def test_the_help_names_every_command_in_its_group() -> None:
    listed: dict[str, list[str]] = {}
    for line in semel_lines("--help"):
        if line.removesuffix(":") in GROUPS:
            listed[group := line.removesuffix(":")] = []
        elif listed and line.startswith("    ") and line[4] != " ":
            listed[group].append(line.split()[0])
    assert listed == {group: list(commands) for group, commands in GROUPS.items()}


def test_the_help_imports_no_command_and_no_broker() -> None:
    code = "import sys\ntry:\n  from semel.ui.cli import main; main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted(name for name in sys.modules if name.startswith('semel.')), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX)
    inside = (f"semel.ui.cli.{name}" for name in ("display", "endings", "errors", "subcommands"))
    modules = ("semel.ui", "semel.ui.cli", *inside)
    assert done.stderr.strip() == str(list(modules))


def test_no_command_loads_a_broker_before_it_is_sure_to_need_one() -> None:
    """The help, and the line about a mistake, are there at once."""
    commands = [f"semel.ui.cli.{command}" for group in GROUPS.values() for command in group]
    code = f"import sys, importlib\nfor name in {commands}: importlib.import_module(name)\n"
    code += "print(*(name for name in sys.modules if name.startswith('semel.log.broker')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_broker_starts_without_what_only_few_brokers_need() -> None:
    code = "import sys, semel, semel.ui.cli.serve\nwith semel.broker(): print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX)
    # Clients of HTTP, archives, other libraries, and the engines of stores: each would make every start wait.
    dear = {"email", "http.client", "importlib.metadata", "urllib.request", "zipfile", "crc32c", "cryptography"}
    # The messages of an API are loaded when the first request needs them.
    dear |= {"semel.wire.kafka.metadata", "semel.wire.kafka.api_versions", "semel.wire.kafka.describe_configs"}
    dear |= {
        "semel.log.broker.token_keys",
        "semel.log.store.bucket",
        "semel.log.store.directory",
        "semel.log.store.postgres",
    }
    imported = done.stdout.split()
    assert "semel.log.broker.broker" in imported, done.stderr
    assert dear.isdisjoint(imported)


def test_a_command_line_is_read_without_what_only_a_file_or_an_archive_needs() -> None:
    code = "import sys\ntry:\n  from semel.ui.cli import main; main(['serve', '--listen=nonsense'])\n"
    code += "except SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX)
    imported = done.stdout.split()
    assert "semel.ui.cli.serve" in imported, done.stderr
    assert {"shutil", "lzma", "tomllib"}.isdisjoint(imported)


def test_the_version_is_that_of_the_package() -> None:
    assert semel_lines("--version") == [f"semel {semel_package.__version__}"]


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "semel", "--version"], capture_output=True, text=True)
    assert done.stdout == f"semel {semel_package.__version__}\n"


@pytest.mark.parametrize("words", [(), ("nonsense",), ("serve",), ("tail",), ("lab", "--nonsense"), ("topics",)])
def test_a_wrong_call_says_how_it_is_called_and_is_2(words: tuple[str, ...]) -> None:
    done = semel(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: semel")


def test_what_a_command_does_not_know_is_told_with_its_own_usage() -> None:
    done = semel("repair", "data", "--yes")
    assert done.stderr.startswith("usage: semel repair ")
    assert done.stderr.endswith("semel repair: error: unrecognized arguments: --yes\n")


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e20", "-1", "soon"])
@pytest.mark.parametrize("command", ["chaos", "demo", "outbox run --database sqlite:// --drain"])
def test_a_time_that_nobody_can_wait_is_refused(command: str, seconds: str) -> None:
    option = "--wait" if command.startswith("outbox") else "--seconds"
    done = semel(*command.split(), f"{option}={seconds}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{seconds!r} is not a number of seconds from 0 to 1000000000" in done.stderr


def test_ctrl_c_ends_a_command_without_a_word() -> None:
    lab = started("lab")
    assert lab.stdin is not None
    assert lab.stdout is not None
    lab.stdin.write("INIT p\n")
    lab.stdin.flush()
    lab.stdout.readline()
    lab.send_signal(signal.SIGINT)
    assert lab.communicate(timeout=SECONDS_MAX) == ("", "")
    assert lab.returncode == 130


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its pipes")
def test_a_reader_that_goes_away_is_no_error_to_speak_of(tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.write_text("LOG_SIZE\n" * 100_000)
    pipe = f"{shlex.join([SEMEL, 'lab', str(commands)])} | head -n 1"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_check_keeps_its_exit_code_although_nobody_reads_its_answer(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=all\nenable.idempotence=true\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([SEMEL, "settings", "check", "--client=java", "--role=producer", file], stdout=writer)
    os.close(writer)
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_a_disk_that_is_full_of_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SEMEL, "settings", "at-least-once"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "semel: writing the output: No space left on device\n")


def test_a_closed_stream_is_the_null_device(tmp_path: Path) -> None:
    """Python has no object for it; and its number must not become that of a file of the broker's, into which any
    library would print."""
    program = """
import os, sys
from semel.ui.cli import main
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
try:
    main(["lab"])
except SystemExit as ended:
    places = {os.fstat(number).st_rdev for number in (0, 1, 2)}
    open(sys.argv[1], "w").write(f"{ended} {places == {os.stat(os.devnull).st_rdev}}")
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "told"], timeout=SECONDS_MAX)
    assert (tmp_path / "told").read_text() == "0 True"


def test_what_a_terminal_cannot_show_does_not_stop_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert semel("lab", stdin="DÉJÀ\n").stdout.startswith("ERROR: unknown command '")
