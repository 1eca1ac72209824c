"""What Python's collector of garbage is kept from in `semel serve`, and what it still has to find.

Each in a process of its own, for a process has one collector. It is counted what the collector looks through, which is
what its time goes by.
"""

import subprocess
import sys
from pathlib import Path

from forked import SECONDS_MAX


def said_by(program: str, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


STAYS = """
import gc
from semel.ui.cli.garbage import Garbage
garbage = Garbage()
garbage.begin()
kept = []
seen = []
gc.callbacks.insert(0, lambda phase, info: seen.append(len(gc.get_objects())) if info["generation"] == 2 else None)
while len(kept) < 400_000:
    kept.append([])
print(max(seen, default=0))
"""


def test_what_stays_is_looked_through_once() -> None:
    (most,) = said_by(STAYS)
    assert int(most) < 100_000


CIRCLES = """
import gc
from semel.ui.cli.garbage import Garbage
class Circle:
    there_are = 0
    def __init__(self):
        self.myself = self
        Circle.there_are += 1
    def __del__(self):
        Circle.there_are -= 1
garbage = Garbage(aside_min=0)
garbage.begin()
garbage.keep()
most = 0
for _ in range(50):
    circles = [Circle() for _ in range(10_000)]
    gc.collect()
    circles.clear()
    most = max(most, Circle.there_are)
    garbage.look()
print(most)
"""


def test_things_in_a_circle_that_lived_long_go_before_they_are_too_many() -> None:
    (most,) = said_by(CIRCLES)
    assert 10_000 < int(most) < 100_000


SERVES = """
import gc, signal, sys, threading
from semel.ui.cli import main
try:
    main(["serve", "--listen=127.0.0.1:0", "--data", sys.argv[1]])
finally:
    aside = gc.get_freeze_count()
    gc.unfreeze()
    print(aside > len(gc.get_objects()) * 0.8)
"""


def test_a_broker_that_serves_has_put_aside_what_it_began_with(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVES, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.terminate()
    assert process.communicate(timeout=SECONDS_MAX) == ("True\n", "")
