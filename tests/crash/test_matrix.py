"""The crash matrix: every call to the disk in a log's life, and every fault that can happen to it.

After each the log has to come back with everything acknowledged, once, in its place, and go on. Each case is named by
the fault and the seed, which replay it. SEMEL_CRASH_SEEDS, 1 by default, is how many ways to lose what was not synced
are tried for each.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from scenarios import KINDS, SCENARIOS, Scenario, a_life, check, faults_to_try, opened, partition, run, send

from ledger import Caller, Ledger, Stopped
from semel.testing.faulty import Call, Crashed, Fault, FaultKind, FaultyFiles, every_fault, keep_all, lose_all

SEEDS = int(os.environ.get("SEMEL_CRASH_SEEDS", "1"))
LOSSES = ("lost write", "partly lost write", "lost name", "lost size")


@cache
def rehearsed(scenario: Scenario) -> list[Call]:
    files, ledger = FaultyFiles(), Ledger()
    assert run(scenario, files, ledger) == "finished"
    check(files.after_kill(), ledger)
    return files.calls


def left_by(files: FaultyFiles, kind: FaultKind, number: int) -> Iterator[tuple[str, FaultyFiles]]:
    """What a restart may find, each with a name: a few of the many possibilities, others for every call."""
    if kind != "crash after":
        # To die before a call is to die after the one before it, so the two share the work.
        yield "the process died", files.after_kill()
    if kind in ("crash after", "torn", "failed sync"):
        yield "all that was not synced is lost", files.survivors(lose_all)
    for seed in range(SEEDS):
        yield f"seed {number * 1000 + seed}", files.survivors(number * 1000 + seed)


def judge(fault: Fault, files: FaultyFiles, ledger: Ledger, judged: Counter[str]) -> None:
    for what, left in left_by(files, fault.kind, fault.at):
        # Names that a failed sync of their directory gave up are there as long as the machine runs, and nothing that a
        # program can do saves them.
        given_up = (fault.kind, fault.call) == ("failed sync", "sync_directory") and what == "the process died"
        try:
            check(left, ledger, power_may_fail=not given_up)
        except BaseException as error:
            raise AssertionError(f"{fault}, then {what}") from error
        judged["recovered logs judged"] += 1


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_happens_to_any_call_what_was_acknowledged_is_there_once(
    kind: FaultKind, scenario: Scenario, fired: Counter[str], judged: Counter[str]
) -> None:
    before = fired[kind]
    for fault in faults_to_try(kind, rehearsed(scenario)):
        files, ledger = FaultyFiles(fault), Ledger()
        ended = run(scenario, files, ledger)
        assert files.fired[kind] == 1, fault
        assert (ended == "crashed") == (kind in ("crash before", "crash after", "torn")), (fault, ended)
        judge(fault, files, ledger, judged)
        fired.update(files.fired)
    assert fired[kind] > before


def test_every_way_of_losing_what_was_not_synced_came_to_pass(fired: Counter[str]) -> None:
    if not fired:
        pytest.skip("the matrix did not run")
    assert all(fired[loss] for loss in LOSSES), fired


def test_a_crash_in_the_recovery_from_a_crash_loses_nothing_either(fired: Counter[str], judged: Counter[str]) -> None:
    crashes = [call.number for call in rehearsed(a_life) if call.kind in ("write", "sync", "rename", "sync_directory")]
    for at in crashes[3::58]:
        files, ledger = FaultyFiles(Fault("crash after", at)), Ledger()
        assert run(a_life, files, ledger) == "crashed"
        for choose in (keep_all, at):
            rehearsal = files.survivors(choose)
            Caller(rehearsal, ledger.copy())
            faults = [fault for fault in every_fault(rehearsal.calls) if fault.kind not in ("crash before", "ENOSPC")]
            for fault in faults[at % 5 :: 5]:
                during = files.survivors(choose, fault)
                # The reserve for a full disk is made where that is possible, so not every refusal is an error.
                with contextlib.suppress(Crashed, OSError):
                    Caller(during, ledger.copy())
                assert during.fired[fault.kind] == 1
                check(during.survivors(fault.at), ledger)
                judged["recovered logs judged"] += 1
                fired[f"{fault.kind} in the recovery from a crash"] += 1


def burst(caller: Caller) -> None:
    """A few of everything that needs space."""
    caller.create("orders", 1, segment_bytes="1024", retention_bytes="2000", retention_ms="-1")
    send(caller, "orders", 0, 600, 600, 600)
    caller.sync()
    caller.retain()
    caller.checkpoint()
    send(caller, "orders", 0, 600, 3000)
    if (target := partition(caller, "orders")) is not None:
        caller.delete_records(target)
    send(caller, "orders", 0, 600)
    caller.sync()
    caller.checkpoint()
    if len(caller.log.state.catalog) > 1:
        caller.delete("orders")


def test_on_a_full_disk_changes_are_refused_and_once_there_is_space_everything_goes_on(
    fired: Counter[str], judged: Counter[str]
) -> None:
    def begun(*faults: Fault) -> tuple[FaultyFiles, Caller]:
        files = FaultyFiles(*faults)
        caller = opened(files, Ledger())
        caller.create("kept", 1, segment_bytes="1024")
        send(caller, "kept", 0, 300)
        caller.sync()
        return files, caller

    files, caller = begun()
    first = len(files.calls)
    burst(caller)
    for call in files.calls[first:]:
        fault = Fault("ENOSPC", call.number, keep=call.size // 3, lasting=True)
        files, caller = begun(fault)
        burst(caller)
        send(caller, "kept", 0, 300, 900)
        if not files.fired:
            continue
        fired["full disk"] += 1
        files.disarm()
        refused = caller.refused
        if caller.log.state.catalog.named("orders") is not None:
            caller.delete("orders")
        send(caller, "kept", 0, 300, 900)
        burst(caller)
        assert caller.refused == refused, "there was space, and still something was refused"
        judge(fault, files, caller.ledger, judged)
        caller.close()
        judge(fault, files, caller.ledger, judged)
    assert fired["full disk"]


def test_nothing_is_tried_again_after_a_sync_that_failed() -> None:
    syncs = [call for call in rehearsed(a_life) if call.kind in ("sync", "sync_directory")]
    for call in syncs:
        files, ledger = FaultyFiles(Fault("failed sync", call.number)), Ledger()
        with pytest.raises(Stopped):
            a_life(files, ledger)
        # What follows is the caller letting go, or nothing at all: not one more sync.
        later = {later.kind for later in files.calls[call.number + 1 :]}
        assert later <= {"close"}, (call, later)
