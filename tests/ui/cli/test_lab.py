"""What `semel lab` promises: the rules as the documents show them, after a restart too, and a line for each mistake."""

import contextlib
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from forked import SECONDS_MAX
from semel_command import SEMEL, semel, semel_failure, semel_lines

EXAMPLES = Path(__file__).parents[3] / "docs/examples"


def answers(*lines: str) -> list[str]:
    return semel_lines("lab", stdin="".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("example", ["lab", "transactions"])
def test_the_examples_are_answered_as_the_documents_show(example: str) -> None:
    told = (EXAMPLES / f"{example}.out").read_text().splitlines()
    assert semel_lines("lab", str(EXAMPLES / f"{example}.txt")) == told
    assert semel_lines("lab", stdin=(EXAMPLES / f"{example}.txt").read_text()) == told


def test_after_a_gap_every_number_but_the_next_is_a_gap_until_a_new_init() -> None:
    assert answers("INIT p", "PRODUCE p 0 a", *(f"PRODUCE p {number} b" for number in (5, 6, 2, 9, 1)))[2:] == [
        "ERROR: sequence gap (expected 1, got 5)",
        "ERROR: sequence gap (expected 1, got 6)",
        "ERROR: sequence gap (expected 1, got 2)",
        "ERROR: sequence gap (expected 1, got 9)",
        "OK offset:1",
    ]
    assert answers("INIT p", "PRODUCE p 3 a", "INIT p", "PRODUCE p 0 a", "LOG_SIZE")[1:] == [
        "ERROR: sequence gap (expected 0, got 3)",
        "PID 1001 EPOCH 0",
        "OK offset:0",
        "1",
    ]


def test_a_restart_forgets_nothing_that_was_accepted() -> None:
    produced = [f"PRODUCE p {number} {number}" for number in range(6)]
    assert answers("INIT p", *produced, "RESTART", *produced, "LOG_SIZE")[7:] == [
        "RESTARTED with 6 records",
        "ERROR: sequence gap (expected 6, got 0)",
        *(f"DUPLICATE offset:{number}" for number in range(1, 6)),
        "6",
    ]


def test_a_producer_id_is_never_given_out_twice() -> None:
    told = answers("INIT p", "RESTART", "INIT p", "INIT q", "RESTART", "INIT r")
    ids = [line for line in told if line.startswith("PID")]
    assert len(set(ids)) == 4


def test_a_fenced_producer_is_refused_whatever_it_sends() -> None:
    told = answers(
        "INIT p", "PRODUCE p 0 a", "FENCE p", "PRODUCE p 0 a", "PRODUCE p 1 b", "PRODUCE p 0 a new", "LOG_SIZE"
    )
    assert told[2:] == ["PID 1000 EPOCH 1", *["ERROR: fenced (epoch 0, current 1)"] * 3, "1"]


def test_a_transaction_goes_on_after_a_restart_between_any_two_of_its_steps() -> None:
    steps = ["INIT p", "BEGIN p", "PRODUCE p 0 a", "PRODUCE p 0 b other", "COMMIT p", "COMMIT p", "READ lab"]
    steps += ["BEGIN p", "PRODUCE p 1 c", "ABORT p", "READ lab", "READ lab uncommitted", "LOG_SIZE"]
    plain = answers(*steps)
    assert plain[6:] == ["0:a", "OK", "OK offset:2", "OK aborted", "0:a", "0:a 2:c", "3"]
    for at in range(1, len(steps)):
        told = answers(*steps[:at], "RESTART", *steps[at:])
        assert told[:at] + told[at + 1 :] == plain


def test_a_transaction_that_is_open_is_neither_begun_again_nor_left_out_of() -> None:
    told = answers("INIT p", "COMMIT p", "BEGIN p", "BEGIN p", "COMMIT p", "ABORT p")
    assert told[1:5] == [
        "ERROR: p never began a transaction",
        "OK",
        "ERROR: a transaction of p is open already",
        "OK committed",
    ]
    assert told[5].startswith("ERROR: the producer has no transaction to abort")


def test_a_successor_aborts_what_its_predecessor_left_open() -> None:
    told = answers("INIT p", "BEGIN p", "PRODUCE p 0 a", "FENCE p", "COMMIT p", "READ lab", "READ lab uncommitted")
    assert told[3:] == ["PID 1000 EPOCH 1", "ERROR: fenced (epoch 0, current 1)", "(nothing)", "0:a"]


def test_a_log_in_a_directory_is_there_the_next_time(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "log"))
    semel_lines("lab", *data, stdin="INIT p\nPRODUCE p 0 a\n")
    assert semel_lines("lab", *data, stdin="LOG_SIZE\n") == ["1"]


def test_what_is_no_command_gets_one_line_and_the_lab_goes_on() -> None:
    wrong = ["FOO", "PRODUCE", "PRODUCE q 0 a", "PRODUCE p x a", "PRODUCE p 0 a t:x", "INIT", "LOG_SIZE now"]
    wrong += ["READ none", "READ t x", f"PRODUCE p {'9' * 5_000} a", f"PRODUCE p 0 a t:{'9' * 5_000}"]
    done = semel("lab", stdin="\n".join(["INIT p", *wrong, "", "# a comment", "LOG_SIZE"]))
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + len(wrong)
    assert all(line.startswith("ERROR: ") for line in lines[1:-1])
    assert lines[-1] == "0"
    assert (done.returncode, done.stderr) == (1, "")


def test_a_payload_may_be_any_bytes() -> None:
    commands = b'INIT p\nPRODUCE p 0 it\'s#17\nPRODUCE p 1 "two words" # both\nPRODUCE p 2 \xff\xfe\n\xff\n'
    done = subprocess.run([SEMEL, "lab"], input=commands, capture_output=True, timeout=SECONDS_MAX)
    told = done.stdout.splitlines()
    assert told[1:4] == [b"OK offset:0", b"OK offset:1", b"OK offset:2"]
    assert told[4].startswith(b"ERROR: unknown command")
    assert done.stderr == b""


def test_an_answer_comes_before_the_next_line_is_read() -> None:
    with subprocess.Popen([SEMEL, "lab"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as lab:
        assert lab.stdin is not None
        assert lab.stdout is not None
        for command, answer in (("INIT p", "PID 1000 EPOCH 0"), ("PRODUCE p 0 a", "OK offset:0"), ("LOG_SIZE", "1")):
            lab.stdin.write(f"{command}\n")
            assert lab.stdout.readline() == f"{answer}\n"


def test_at_a_terminal_there_is_a_prompt_and_the_end_of_input_ends_it() -> None:
    ours, theirs = pty.openpty()
    lab = subprocess.Popen([SEMEL, "lab"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    for typed in (b"INIT p\n", b"FOO\n", b"\x04"):
        before = len(shown)
        while b"semel> " not in shown[before:]:
            shown += os.read(ours, 4096)
        os.write(ours, typed)
    # Whatever it says last, it says before it ends; a terminal without anybody on it cannot be read.
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert lab.wait(SECONDS_MAX) == 0
    assert b"PID 1000 EPOCH 0" in shown
    assert b"unknown command 'FOO'" in shown


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert semel_failure("lab", str(tmp_path / "none")).endswith("No such file or directory")
    assert semel_failure("lab", str(tmp_path)).endswith("Is a directory")


def test_plain_answers_are_verdicts_and_nothing_else() -> None:
    commands = "INIT p\nPRODUCE p 0 a\nPRODUCE p 0 a\nPRODUCE p 5 b\nFENCE p\nPRODUCE p 1 b\nLOG_SIZE\n"
    assert semel_lines("lab", "--plain", stdin=commands) == [
        *("OK", "OK", "DUPLICATE", "ERROR: sequence gap", "OK", "ERROR: fenced", "1"),
    ]


def test_a_program_gets_an_object_for_each_command() -> None:
    commands = "INIT p\nPRODUCE p 0 a\nPRODUCE p 0 a\nPRODUCE p 5 b\nREAD lab\n"
    done = semel("lab", "--json", stdin=f"{commands}LOG_SIZE\nEAT\n")
    assert [json.loads(line) for line in done.stdout.splitlines()][:-1] == [
        {"command": "INIT", "answer": "OK", "producer_id": 1000, "epoch": 0},
        {"command": "PRODUCE", "answer": "OK", "offset": 0},
        {"command": "PRODUCE", "answer": "DUPLICATE", "offset": 0},
        {"command": "PRODUCE", "answer": "ERROR", "message": "sequence gap (expected 1, got 5)"},
        {"command": "READ", "answer": "OK", "records": ["0:a"]},
        {"command": "LOG_SIZE", "answer": "OK", "records": 1},
    ]
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["answer"]) == (1, "ERROR")
