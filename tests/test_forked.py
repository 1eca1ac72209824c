"""A program that is forked from a process that has loaded much is, for itself and for whoever reads what it prints, the
program that a new interpreter runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forked

# What a program may notice of its process.
FACTS = """
import gc, json, locale, logging, multiprocessing, os, random, resource, signal, sys, threading, time, warnings

def stream(one):
    return [one.fileno(), one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through]

facts = {
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "first streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "program": [os.path.abspath(sys.argv[0]), __file__, __name__],
    "arguments": sys.argv[1:],
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "log": [str(handler) for handler in logging.root.handlers] + [logging.root.level, logging.root.manager.disable],
    "locale": [locale.setlocale(category) for category in (locale.LC_CTYPE, locale.LC_NUMERIC, locale.LC_TIME)],
    "time zone": time.tzname,
    "umask": os.umask(0),
    "signals": {number: str(signal.getsignal(number)) for number in range(1, 32)},
    "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "wakeup": signal.set_wakeup_fd(-1),
    "processes": [multiprocessing.parent_process(), multiprocessing.current_process().name],
    "threads": [thread.name for thread in threading.enumerate()],
    "hooks": [sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.gettrace()],
    "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "recursion": sys.getrecursionlimit(),
    "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
    # A library that is loaded may keep its own file open, as libffi does from 3.5 on.
    "open files": [
        name
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}") and ".so" not in os.readlink(f"/proc/self/fd/{name}")
    ],
}
"""
# Libraries that are loaded filter warnings about themselves, as they do wherever a program imports them.
WARNINGS = "import json, warnings; print(json.dumps([str(one) for one in warnings.filters]))"
# An interpreter that starts obeys what is said to Python in variables; one that has been forked has started already.
HERE = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def both_ways(
    program: str, folder: Path, *words: str, environment: dict[str, str] = HERE, stdin: str = ""
) -> list[subprocess.CompletedProcess[str]]:
    """What the program says and how it ends: forked, and run by a new interpreter."""
    (folder / "program.py").write_text(program)
    return [
        forked.run("python", "program.py", *words, folder=folder, environment=environment, stdin=stdin),
        subprocess.run(
            [sys.executable, "program.py", *words],
            cwd=folder,
            env=environment,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
        ),
    ]


@pytest.mark.parametrize(
    "environment",
    [HERE, {}, {"LC_ALL": "C.UTF-8", "TZ": "Asia/Kathmandu", "PYTHONPATH": "/somewhere:/else", "OWN": "kept"}],
    ids=["this one", "empty", "another one"],
)
def test_a_forked_program_finds_the_process_that_a_new_interpreter_finds(
    environment: dict[str, str], tmp_path: Path
) -> None:
    program = f"{FACTS}\nprint(json.dumps(facts))"
    found, expected = (
        json.loads(ran.stdout) for ran in both_ways(program, tmp_path, "one", "two words", environment=environment)
    )
    assert found == expected


def test_a_forked_program_has_the_warnings_of_a_new_interpreter(tmp_path: Path) -> None:
    found, expected = (json.loads(ran.stdout) for ran in both_ways(WARNINGS, tmp_path))
    assert found[-len(expected) :] == expected
    assert all("numpy" in added for added in found[: -len(expected)])


PROGRAMS = {
    "reads": "import sys; print(sys.stdin.read()); print('an error', file=sys.stderr)",
    "exits": "import sys; sys.stdout.write('no end of line'); sys.exit(3)",
    "exits with a sentence": "import sys; sys.exit('a sentence')",
    "fails": "def fail():\n    raise ValueError('of the program')\nprint('before')\nfail()",
    "is killed": "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "writes to the descriptor": "import os; os.write(1, b'unbuffered '); print('buffered')",
    "has something to do at its end": "import atexit; atexit.register(print, 'at the end'); print('before')",
    "has a thread": """
import threading
ended = threading.Event()
threading.Thread(target=lambda: print('by a thread', ended.wait())).start()
print('by the program')
ended.set()
""",
    "has processes": """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(abs, [-1]))
""",
    "has a child": "import subprocess; print('before', flush=True); subprocess.run(['echo', 'by a child'], check=True)",
    "logs": "import logging; logging.basicConfig(); logging.getLogger('own').warning('logged')",
    "warns": "import warnings; warnings.warn('of the program')",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_forked_program_says_what_a_new_interpreter_says_and_ends_as_it_does(program: str, tmp_path: Path) -> None:
    found, expected = both_ways(program, tmp_path, stdin="a line with an ü\n")
    assert expected.stdout + expected.stderr
    assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, expected.returncode)


def test_what_a_loaded_library_prints_is_seen_in_its_order(tmp_path: Path) -> None:
    """Alembic keeps the standard output that it finds when it is loaded."""
    program = "from alembic.config import Config\nprint('one')\nConfig().print_stdout('two')\nprint('three')"
    assert forked_output(program, tmp_path) == "one\ntwo\nthree\n"


def test_each_forked_program_draws_other_numbers(tmp_path: Path) -> None:
    program = "import random, uuid; print(random.getrandbits(128), uuid.uuid4())"
    assert len({forked_output(program, tmp_path) for _ in range(3)}) == 3


def forked_output(program: str, folder: Path) -> str:
    (folder / "program.py").write_text(program)
    ran: Any = forked.run("python", "program.py", folder=folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    return str(ran.stdout)
