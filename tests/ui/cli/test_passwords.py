"""A password that a command reads is all that stands in the line: without its end, and with its spaces."""

import io
from pathlib import Path

import pytest

from semel.ui.cli.password_file import password_in
from semel.ui.cli.users import _password

LINES = pytest.mark.parametrize("line", [b" s3cret ", b" s3cret \n", b" s3cret \r\n", b" s3cret \nmore\n"])


@LINES
def test_a_password_in_a_file_is_its_first_line_without_the_end(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(line)
    assert password_in(str(file)) == _password(str(file)) == " s3cret "


@LINES
def test_a_password_on_standard_input_is_its_first_line_without_the_end(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line), encoding="utf-8"))
    assert _password(None) == " s3cret "
