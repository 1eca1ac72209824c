"""`semel serve --config FILE`: each flag has its key, the command line goes first, and a mistake is one line."""

import argparse
from pathlib import Path

import pytest

from semel.ui.cli import serve
from semel.ui.cli.errors import Failure
from semel.ui.cli.flags_file import with_file
from semel_command import semel_failure


def read(tmp_path: Path, text: str, *words: str) -> argparse.Namespace:
    """What the command is told by this file and these words."""
    file = tmp_path / "broker.toml"
    file.write_text(text)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    serve.configure(parser)
    return parser.parse_args(with_file(parser, [f"--config={file}", *words]))


def test_every_flag_has_its_key(tmp_path: Path) -> None:
    """A file with a key for each flag is the same as a command line with each flag."""
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    lines, words = [], []
    for action in parser._actions:
        flag = action.option_strings[-1]
        # One that is not shown is for a process that starts the broker.
        if flag in ("--help", "--config") or action.help == argparse.SUPPRESS:
            continue
        if action.nargs == 0:
            lines.append(f"{flag[2:]} = true")
            words.append(flag)
            continue
        value = "7" if action.type else next(iter(action.choices or ["x=1"]))
        shown = value if action.type else f'"{value}"'
        lines.append(f"{flag[2:]} = [{shown}]" if action.default == [] else f"{flag[2:]} = {shown}")
        words.append(f"{flag}={value}")
    told, expected = read(tmp_path, "\n".join(lines)), parser.parse_args(words)
    told.config = None
    assert told == expected
    assert len(lines) > 20


def test_a_flag_on_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    text = 'data = "a"\nlisten = ["127.0.0.1:1"]\nlog-level = "info"\npartitions = 3\n'
    options = read(tmp_path, text, "--listen", "127.0.0.1:2", "--log-level=warning")
    assert (options.data, options.listen, options.log_level) == ("a", ["127.0.0.1:2"], "warning")
    assert options.partitions == 3
    assert read(tmp_path, text).listen == ["127.0.0.1:1"]
    # The list of a flag is not kept for the next one that reads.
    assert read(tmp_path, 'data = "a"\n').listen == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lisen = []", "unknown key 'lisen'; there are data, must-have-log, listen, "),
        ("help = true", "unknown key 'help'"),
        ('config = "b.toml"', "unknown key 'config'"),
        ("listen = " + "[" * 10_000, "maximum recursion depth"),
        ("[limit]\nconnections_max = 1", "limit: a list is wanted"),
        ("limit = [1]", "limit: a list of strings is wanted"),
        ("data = 1", "data: a string is wanted"),
        ('data = ["a"]', "data: a string is wanted"),
        ('insecure = "no"', "insecure: true or false is wanted"),
        ("partitions = true", "partitions: a whole number is wanted"),
        ("partitions = 0", "partitions: '0' is not a whole number from 1 on"),
        ('durability = "none"', "durability: one of fsync, os is wanted"),
        ("data = ", "Invalid value"),
        (f"partitions = {'9' * 5_000}", "Exceeds the limit"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(Failure) as failure:
        read(tmp_path, text)
    assert str(failure.value).startswith(f"{tmp_path}/broker.toml: {complaint}")
    assert "\n" not in str(failure.value)


def test_the_command_ends_with_that_line(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text('data = "data"\nlisen = []\n')
    assert "unknown key 'lisen'" in semel_failure("serve", "--config", str(tmp_path / "broker.toml"))
    assert "No such file" in semel_failure("serve", "--config", str(tmp_path / "none.toml"))


def test_the_broker_serves_what_the_file_says(tmp_path: Path) -> None:
    """The file alone is enough; here it names a listener that is refused, in the words of the command line."""
    file = tmp_path / "broker.toml"
    file.write_text(f'data = "{tmp_path}/data"\nlisten = ["0.0.0.0:0"]\n')
    assert "listener PLAINTEXT on 0.0.0.0 is PLAINTEXT" in semel_failure("serve", f"--config={file}")
