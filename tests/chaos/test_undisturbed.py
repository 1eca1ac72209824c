"""Holds that no signal strikes between the start of a process and the moment from which somebody ends it."""

from __future__ import annotations

import signal
import threading

import pytest

from semel.chaos.undisturbed import undisturbed


def test_a_signal_that_comes_while_a_process_is_started_strikes_when_that_is_known() -> None:
    known = []

    def start_one() -> None:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            known.append("a process")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        start_one()
    assert known == ["a process"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_comes_while_a_start_fails_is_not_lost() -> None:
    def start_one() -> None:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            raise FileNotFoundError

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        start_one()


def test_what_is_ignored_is_ignored_by_the_process_that_is_started_too() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with undisturbed():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_thread_holds_no_signal_back_and_starts_what_it_likes() -> None:
    started: list[object] = []

    def start_one() -> None:
        with undisturbed():
            started.append(signal.getsignal(signal.SIGINT))

    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=start_one)
    thread.start()
    thread.join()
    assert started == [signal.default_int_handler]
