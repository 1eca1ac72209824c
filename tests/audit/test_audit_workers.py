"""Processes that count: they give their results in order, and live no longer than whoever asked them."""

import os
import resource
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eventually import SECONDS_MAX, eventually
from semel.audit.errors import AuditFailed
from semel.audit.workers import Workers

PARENT = """
import sys
from test_audit_workers import say_and_wait
from semel.audit.workers import Workers

if __name__ == "__main__":
    with Workers(2) as workers:
        list(workers.each(say_and_wait, [sys.argv[1]] * 2))
"""


UNGUARDED = """
from semel.audit import Given, audit

audit(Given(["p-1"]), Given(["p-1"]), processes=2)
"""


def say_and_wait(directory: str) -> None:
    Path(directory, str(os.getpid())).touch()
    threading.Event().wait()


def doubled(number: int) -> int:
    if number < 0:
        raise AuditFailed("less than nothing")
    return 2 * number


def die(_: int) -> None:
    os._exit(9)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_tasks_and_failures_as_they_are(processes: int) -> None:
    with Workers(processes) as workers:
        assert list(workers.each(doubled, range(10))) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
        with pytest.raises(AuditFailed, match="less than nothing"):
            list(workers.each(doubled, [1, -1]))


def test_where_processes_have_nothing_to_share_one_counts_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """As without a /dev/shm that can be written; here no pipe can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        workers = Workers(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with workers:
        assert list(workers.each(doubled, range(3))) == [0, 2, 4]
    assert "counting in one process" in caplog.text


def test_a_script_that_every_process_would_run_again_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100).stderr
    assert 'no `if __name__ == "__main__"`' in said.splitlines()[-1]


def test_a_worker_that_was_killed_is_no_verdict() -> None:
    with Workers(2) as workers, pytest.raises(AuditFailed, match="too little memory"):
        list(workers.each(die, [1, 2]))


def test_no_worker_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    said = tmp_path / "said"
    said.mkdir()
    # The parent imports this module, and with it what that imports.
    places = (Path(__file__).parent, Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, str(script), str(said)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as parent:
        assert eventually(lambda: len(list(said.iterdir())) == 2)
        workers = [os.pidfd_open(int(path.name)) for path in said.iterdir()]
        parent.kill()
    for worker in workers:
        # It can be read when the process has ended.
        assert select.select([worker], [], [], SECONDS_MAX)[0]
        os.close(worker)
