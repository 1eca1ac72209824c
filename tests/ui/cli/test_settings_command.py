"""What `semel settings` promises: text to paste, and a check that names each conflict and says so by its exit code."""

from pathlib import Path

from semel.settings import exactly_once
from semel_command import semel, semel_failure, semel_lines


def test_the_printed_bundle_is_a_dictionary_with_a_reason_in_each_line() -> None:
    lines = semel_lines("settings", "exactly-once", "--client", "aiokafka", "--role", "producer")
    assert all("  # " in line for line in lines[1:-1])
    made: dict[str, dict[str, object]] = {}
    exec("\n".join(lines), made)
    assert made["producer"] == exactly_once("aiokafka").producer


def test_what_the_command_prints_passes_its_own_check(tmp_path: Path) -> None:
    words = ("settings", "exactly-once", "--client", "java", "--transactional-id", "billing-1")
    file = tmp_path / "client.properties"
    file.write_text("\n".join(semel_lines(*words)))
    assert semel_lines("settings", "check", str(file)) == ["no conflict with exactly-once"]
    file.write_text("\n".join(semel_lines("settings", "at-least-once", "--client", "java")))
    assert semel("settings", "check", str(file)).returncode == 1
    assert semel("settings", "check", str(file), "--for", "at-least-once").returncode == 0


def test_each_conflict_is_named_with_its_cost(tmp_path: Path) -> None:
    file = tmp_path / "producer.json"
    file.write_text('{"enable.idempotence": true, "acks": 1, "message.timeout.ms": 1000}')
    done = semel("settings", "check", str(file))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "acks=1 with enable.idempotence=true: the broker answers before the batch is safe, so sequence numbers cannot "
        "save it [refused]; set acks=all",
        "message.timeout.ms=1000 with socket.timeout.ms=60000: a record is given up while its first request may still "
        "be answered: it may be stored, or not [lost]; set message.timeout.ms to 60005 or more, or wait less for "
        "answers",
    ]


def test_a_file_that_cannot_be_judged_fails_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    assert "No such file" in semel_failure("settings", "check", str(file))
    file.write_text("enable_idempotence = true")
    assert "cannot tell whose settings these are" in semel_failure("settings", "check", str(file))
    file.write_text("enable_idempotence = ")
    assert "this is no TOML" in semel_failure("settings", "check", str(file))
    assert "has to end with one of .properties, .json, .toml" in semel_failure("settings", "check", "client.ini")


def test_a_word_that_is_no_choice_is_answered_with_the_words_that_are() -> None:
    for words in (("exactly",), ("check", "x.json", "--client", "kafka"), ("check", "x.json", "--role", "reader")):
        error = semel("settings", *words).stderr
        assert "invalid choice" in error
        assert "<" not in error


def test_a_check_that_cannot_tell_names_the_option_that_says_it(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    file.write_text('{"acks": 1}')
    assert "--client confluent|aiokafka|kafka-python|java" in semel_failure("settings", "check", str(file))
    file.write_text('{"client.id": "billing"}')
    assert "--role producer|consumer" in semel_failure("settings", "check", str(file))


def test_strict_order_is_printed_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    words = ("settings", "exactly-once", "--client", "java")
    file.write_text("\n".join(semel_lines(*words)))
    assert semel("settings", "check", "--strict-order", str(file)).stdout.startswith("max.in.flight.requests.per")
    file.write_text("\n".join(semel_lines(*words, "--strict-order")))
    assert semel_lines("settings", "check", "--strict-order", str(file)) == ["no conflict with exactly-once"]
