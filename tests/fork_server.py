"""A new interpreter that has loaded what commands and programs use, and is forked into each of them.

    python fork_server.py WORKERS STARTER

`forked.py` starts it once for all workers. Each connects to the first socket, and is served by a fork of its own: it
sends a message for each program: what to run, and a socket for the answer. A fork must share with this process only
what it has loaded: no open file, nothing that was printed, and no random number.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import locale
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

MESSAGE_BYTES_MAX = 1 << 17
LOADED = (
    *("semel.audit.run", "semel.database.engines", "semel.http", "semel.inbox", "semel.outbox", "semel.publish"),
    *("semel.testing.broker", "sqlalchemy.dialects.sqlite", "sqlalchemy.orm", "pyarrow.compute", "alembic.config"),
    *("confluent_kafka", "fastapi", "httpx", "hypothesis", "pytest"),
)

OURS = (__file__, runpy.run_path.__code__.co_filename)


def load() -> None:
    import semel.ui.cli

    for name in (*LOADED, *(module.name for module in pkgutil.iter_modules(semel.ui.cli.__path__, "semel.ui.cli."))):
        # What is not installed is not needed by the tests that run here.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def serve_each(workers: socket.socket, starter: socket.socket) -> None:
    """Serve each worker in a fork, until whoever has started this process is gone. Nothing is loaded if none comes."""
    both = [workers, starter]
    if starter not in select.select(both, [], [])[0]:
        load()
    # Ctrl-C is for the tests.
    handlers = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    while starter not in select.select(both, [], [])[0]:
        requests, _ = workers.accept()
        if os.fork() == 0:
            workers.close()
            starter.close()
            serve(requests, handlers)
            return
        requests.close()


def serve(requests: socket.socket, handlers: dict[signal.Signals, Any]) -> None:
    """Start what is asked for, until the asking process is gone."""
    # A process that has told how its program ended has no more to say.
    handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(requests, MESSAGE_BYTES_MAX, 1)
        if not message:
            return
        with socket.socket(fileno=files[0]) as caller:
            if os.fork() != 0:
                continue
            requests.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if (program := os.fork()) != 0:
                tell_how_it_ends(program, caller)
        be(**json.loads(message))


def tell_how_it_ends(program: int, caller: socket.socket) -> None:
    caller.send(str(program).encode())
    _, status = os.waitpid(program, 0)
    caller.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def be(words: list[str], streams: list[str], folder: str, environment: dict[str, str], *, at_a_terminal: bool) -> None:
    """Be this command, as if it had been started with these three streams."""
    for number, (stream, mode) in enumerate(zip(streams, "raa", strict=True)):
        with open(stream, mode) as file:
            os.dup2(file.fileno(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if locale.setlocale(locale.LC_CTYPE, "") == "C" and "LC_ALL" not in environment:
        # As Python does where nobody has said anything of a language.
        os.environ["LC_CTYPE"] = locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    # Bytes that are no text are only let through where the language may be another one than the data's.
    errors = "surrogateescape" if locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX", "C.UTF-8", "C.utf8") else "strict"
    sys.stdin.reconfigure(errors=errors)
    sys.stdout.reconfigure(errors=errors, line_buffering=at_a_terminal)
    time.tzset()
    random.seed()
    end_with(code_of(words, Path(folder)))


def end_with(code: int) -> None:
    """End as an interpreter does, except that it would take everything apart that has been loaded, which takes longer
    than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def code_of(words: list[str], folder: Path) -> int:
    try:
        run(words, folder)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:
        trace = error.__traceback__
        # The first frames are not the program's.
        while trace is not None and trace.tb_frame.f_code.co_filename in OURS:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


def run(words: list[str], folder: Path) -> None:
    if words[0] != "python":
        # A command is a program as well.
        words = ["python", str(Path(sys.executable).with_name(words[0])), *words[1:]]
    named = os.environ.get("PYTHONPATH")
    sys.path[:1] = named.split(os.pathsep) if named else []
    if words[1] == "-m":
        sys.argv[:] = words[2:]
        sys.path.insert(0, str(folder))
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        return
    sys.argv[:] = words[1:]
    program = folder / words[1]
    sys.path.insert(0, str(program.parent))
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    serve_each(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
