"""The example of a Django project, on a database of each kind: its tests pass, its checks find what was planted, and
its commands bring an order to the consumer."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url, text

from committed_records import make_topic
from eventually import eventually
from semel import schema
from semel.database import engine_of

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples/django_shop"
PAGE = ROOT / "docs/how-to/django.md"
IN_PROJECT = Path(__file__).parent / "admin_in_project.py"

Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(url: str, tmp_path: Path) -> Path:
    folder = tmp_path / "django_shop"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(IN_PROJECT, folder / "shop/test_admin.py")
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": parsed.database, "USER": parsed.username}
        database |= {"HOST": parsed.host, "PORT": parsed.port, "TEST": {"NAME": f"test_{parsed.database}"}}
        add(folder, f"DATABASES = {{'default': {database!r}}}")
    return folder


def add(project: Path, lines: str) -> None:
    with (project / "project/settings.py").open("a") as settings:
        settings.write(f"\n{lines}\n")


def started(project: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=project,
        # With another Django, if the run has one.
        env={"PATH": "", "DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ran(project: Path, program: str) -> str:
    """What a program says in the project; a process of Django takes a second to start, so it does several things."""
    first = "import django\ndjango.setup()\nfrom django.core.management import CommandError, call_command\n"
    process = started(project, "-c", first + program)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def engine_to(project: Path, url: str) -> Engine:
    return engine_of(url if url.startswith("postgresql") else f"sqlite:///{project}/shop.db")


CHECKED = """
from django.core.checks import run_checks
def check():
    print(*sorted({one.id for one in run_checks(include_deployment_checks=True) if one.id.startswith("semel")}))
"""


def test_its_tests_pass_and_its_migrations_make_what_semel_makes(project: Path, url: str) -> None:
    said = ran(
        project,
        f"{CHECKED}\ncheck()\ncall_command('migrate', verbosity=0)\ncheck()\n"
        "call_command('makemigrations', check_changes=True, dry_run=True)\n"
        "call_command('test', interactive=False)\n",
    )
    assert "semel.E013\n\nNo changes detected\n" in said
    assert "Ran 16 tests" in said
    engine = engine_to(project, url)
    schema.check(engine, "outbox", "inbox", "http")
    engine.dispose()


def test_the_page_shows_the_example_as_it_is() -> None:
    shown = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    for name, code in shown:
        assert code.strip("\n") in (EXAMPLE / name).read_text(), name


def test_the_check_finds_what_was_planted(project: Path, url: str) -> None:
    """Keys in another alias than the models, on a database and in an order that do not do. The application is installed
    by its older name."""
    if not url.startswith("sqlite"):
        pytest.skip("the mistakes are those of the project")
    add(
        project,
        "MIDDLEWARE.reverse()\n"
        "INSTALLED_APPS[INSTALLED_APPS.index('semel.django')] = 'semel.http.django'\n"
        "other = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'other.db', 'AUTOCOMMIT': False}\n"
        "DATABASES |= {'other': {**other, 'ATOMIC_REQUESTS': True}}\n",
    )
    keys = project / "shop/keys.py"
    keys.write_text(
        keys.read_text().replace("(transactions,", "(__import__('functools').partial(transactions, 'other'),")
    )
    found = "semel.E002 semel.E006 semel.E007 semel.E013 semel.W008 semel.W009 semel.W011"
    assert ran(project, f"{CHECKED}\ncheck()") == f"{found}\n"


ORDERED = """
call_command("migrate", verbosity=0)
from django.test import RequestFactory
from shop.views import order
for item in ("a pen", "a book", "a pen"):
    order(RequestFactory().post("/orders", {"item": item}))
call_command("semel_reap")
try:
    call_command("semel_inbox", "nobody")
except CommandError as error:
    print(error)
"""


def test_an_order_gets_to_its_invoice_by_the_commands(project: Path, url: str, bootstrap: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, topic)
    for name in ("views", "inbox"):
        file = project / f"shop/{name}.py"
        file.write_text(file.read_text().replace('"orders"', f'"{topic}"'))
    add(project, f"SEMEL['KAFKA'] = {{'bootstrap.servers': {bootstrap!r}}}")
    said = ran(project, ORDERED)
    assert said == "0 keys and 0 claims deleted\nthere is no consumer 'nobody'; there are billing\n"
    commands = [started(project, "manage.py", name) for name in ("semel_relay", "semel_inbox")]
    engine = engine_to(project, url)

    def invoices() -> int:
        with engine.connect() as connection:
            return connection.execute(text("SELECT count(*) FROM shop_invoice")).scalar_one()

    try:
        are_billed = eventually(lambda: invoices() == 2)
    finally:
        for process in commands:
            process.send_signal(signal.SIGTERM)
        relayed, consumed = (process.communicate()[0] for process in commands)
        engine.dispose()
    assert are_billed, relayed + consumed
    assert [process.returncode for process in commands] == [0, 0], relayed + consumed
    assert relayed.startswith(f"semel: publishes to {bootstrap}; database 'default' (")
    assert relayed.endswith("2 messages published\n")
    assert consumed.startswith(f"semel: billing consumes {topic} from {bootstrap}; database 'default' (")
    assert "2 events done, 0 duplicates" in consumed
