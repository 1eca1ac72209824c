"""A password that a command reads is all that stands in the line: without its end, and with its spaces."""

import io
from pathlib import Path
from typing import Any

import pymysql
import pytest

from semel.audit import AuditFailed, audit
from semel.spark import sql_sink
from semel.ui.cli import main
from semel.ui.cli.databases import warn_of_password
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


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "mysql", "mysql+pymysql", "mariadb"])
def test_the_warning_of_a_password_in_a_url_says_what_its_own_database_reads(
    scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_password(f"{scheme}://app:s3cret@db/shop")
    said = capsys.readouterr().err
    assert ("PGPASSWORD" in said) is scheme.startswith("postgresql")
    assert ("?read_default_file=FILE" in said) is not scheme.startswith("postgresql")


def test_the_sink_the_audit_and_a_reset_take_the_password_of_mysql_from_a_file_that_the_url_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.cnf").write_text("[client]\npassword=s3cret\n")
    passwords: list[Any] = []

    def connect(connection: Any, *_: object) -> None:
        passwords.append((connection.user, connection.password))
        raise pymysql.err.OperationalError(1045, "nobody is asked here")

    monkeypatch.setattr(pymysql.connections.Connection, "connect", connect)
    options = f"read_default_file={tmp_path}/shop.cnf"
    with pytest.raises(ConnectionError, match="nobody is asked here"):
        sql_sink(f"mysql://app@db/shop?{options}", "orders")
    with pytest.raises(AuditFailed, match="nobody is asked here"):
        audit(f"mysql://app@db/shop/orders?id=id&{options}", f"mysql://app@db/shop/orders?id=id&{options}")
    with pytest.raises(SystemExit):
        main(["reset", f"--checkpoint={tmp_path}/none", f"--sink=mysql://app@db/shop/orders?{options}"])
    assert set(passwords) == {("app", b"s3cret")}
    assert len(passwords) >= 3
