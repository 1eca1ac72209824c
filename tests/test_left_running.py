"""What a test leaves running fails it: it would reach into the tests after it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter

from left_running import left_running, running


def test_a_relay_that_goes_on_is_noticed() -> None:
    before, ended = running(), threading.Event()
    thread = threading.Thread(target=ended.wait, name="semel-outbox-0")
    thread.start()
    try:
        assert left_running(before, seconds_max=0) == {"semel-outbox-0": 1}
    finally:
        ended.set()
        thread.join()
    assert left_running(before) == {}


def test_a_command_that_goes_on_is_noticed_by_its_words() -> None:
    before, words = running(), [sys.executable, "-m", "semel", "lab"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert left_running(before, seconds_max=0) == {" ".join(words): 1}
        process.kill()
    assert left_running(before) == {}


def test_what_was_there_before_may_go_on_and_what_is_about_to_end_may_end() -> None:
    states = iter([Counter({"semel-outbox-0": 2, "semel-outbox-1": 1}), Counter({"semel-outbox-0": 2})])
    assert left_running(Counter({"semel-outbox-0": 2}), lambda: next(states, Counter())) == {}
