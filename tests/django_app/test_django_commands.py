"""Commands have connections of their own, and refuse a database that such a connection could not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from djangos import alias_of
from semel.database import engine_of

COMMANDS: tuple[tuple[str, dict[str, Any]], ...] = (("semel_relay", {"drain": True}), ("semel_reap", {}))


def refusal(alias: str, command: str, options: dict[str, Any]) -> str:
    from django.core.management import CommandError, call_command
    from django.test.utils import override_settings

    settings = {"ALIAS": alias, "KAFKA": {"bootstrap.servers": "127.0.0.1:1"}}
    with override_settings(SEMEL=settings), pytest.raises(CommandError) as refused:
        call_command(command, **options)
    return str(refused.value)


@pytest.mark.parametrize(("command", "options"), COMMANDS)
@pytest.mark.parametrize("name", [":memory:", "file:memorydb_default?mode=memory&cache=shared"])
def test_a_database_in_memory_is_refused_by_name_and_no_file_is_made(
    command: str, options: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Django makes it for tests on SQLite."""
    monkeypatch.chdir(tmp_path)
    with alias_of(create_engine(f"sqlite:///{tmp_path}/unused.db")) as alias:
        from django.db import connections

        connections[alias].settings_dict["NAME"] = name
        said = refusal(alias, command, options)
    assert "is in memory" in said
    assert f"DATABASES[{alias!r}]['TEST']" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "options"), COMMANDS)
def test_a_command_inside_of_atomic_is_refused(command: str, options: dict[str, Any], url: str) -> None:
    """It would not see what the block has written, and on SQLite it would wait for the block."""
    engine = engine_of(url)
    with alias_of(engine) as alias:
        from django.db import transaction

        with transaction.atomic(using=alias):
            assert "TransactionTestCase" in refusal(alias, command, options)
    engine.dispose()
