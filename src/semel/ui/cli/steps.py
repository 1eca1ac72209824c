"""`semel steps`: runs the workflows of an application, shows them, cancels them, and has them go on.

It must never run a workflow but with `run`, nor delete one that has not ended.
"""

import argparse
import json
from typing import TYPE_CHECKING, Final

from semel.service.options import add_options
from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.display import NOTHING, counted, print_table, printable, time_shown
from semel.ui.cli.errors import Failure
from semel.ui.cli.services import add_every, add_sessions, database_of, imported, reap, serving
from semel.ui.cli.subcommands import add_subcommand, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from semel.steps import Found, Workflow

EXAMPLE: Final = """  semel steps run shop.flows --database postgresql://host/app --queue default --queue mail=2
  semel steps list --state failed --database postgresql://host/app
  semel steps resume --all --database postgresql://host/app
  semel steps resume order-7 --from charge --database postgresql://host/app"""

_STATES: Final = ("running", "waiting", "done", "failed", "cancelled")
_LISTED_MAX: Final = 100
_DAY_MS: Final = 24 * 60 * 60 * 1000


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="run|list|show|cancel|resume|reap", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        add_database(own)
        return own

    own = action("run", "run the workflows that are due, until it is stopped; more than one may run")
    own.add_argument("module", metavar="MODULE", help="the module that has the functions under @workflow")
    own.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME[=N]",
        help="take from this queue, and have no more than N of it running in all workers together (default)",
    )
    add_sessions(own, "step.connection() is a session")
    own.add_argument("--runs", type=positive, default=10, metavar="N", help="how many it runs at once (10)")
    own.add_argument("--drain", action="store_true", help="run what is due now, print the number of runs, and end")
    add_options(own)
    own = action("list", "show the newest workflows")
    own.add_argument("--state", choices=_STATES, action="append", default=[], help="only those in this state")
    own.add_argument("--limit", type=positive, default=_LISTED_MAX, metavar="N", help="how many (100)")
    own.add_argument("--json", action="store_true", help="one JSON object to a line")
    own = action("show", "show the recorded steps of a workflow, with their results")
    own.add_argument("id", metavar="ID")
    own = action("cancel", "end workflows: what runs of them records nothing more")
    own.add_argument("ids", metavar="ID", nargs="+")
    own = action("resume", "have workflows go on after their last recorded step, or do some steps again")
    own.add_argument("ids", metavar="ID", nargs="*")
    own.add_argument("--all", action="store_true", help="all that have failed")
    own.add_argument("--from", dest="from_step", metavar="STEP", help="do this step and all later ones again")
    own = action("reap", "delete workflows that have ended, and say how many they were")
    own.add_argument("--days", type=positive, default=30, metavar="N", help="only if they ended N days ago (30)")
    add_every(own)


def run(options: argparse.Namespace) -> int:
    with opened(options.database) as engine:
        from semel.steps import WorkflowRefused

        try:
            return _run(options, engine)
        except WorkflowRefused as error:
            raise Failure(str(error)) from error


def _run(options: argparse.Namespace, engine: "Engine") -> int:
    from semel import steps
    from semel.steps import cancel, ledger, resume

    if options.action == "run":
        return _work(options, engine)
    if options.action == "reap":
        kept_ms = options.days * _DAY_MS
        what = "deletes ended workflows"
        return reap(options, engine, what, lambda: f"{counted(steps.reap(engine, kept_ms), 'workflow')} deleted")
    with engine.begin() as connection:
        if options.action == "list":
            _show(ledger.listed(connection, options.state, options.limit), as_json=options.json)
        elif options.action == "show":
            ledger.look_up(connection, options.id)
            for step, result in ledger.steps_of(connection, options.id).items():
                print(printable(f"{step}: {json.dumps(result)}"))
        elif options.action == "cancel":
            for id in options.ids:
                cancel(connection, id)
            print(f"{len(options.ids)} cancelled")
        else:
            if bool(options.ids) == options.all:
                raise Failure("name the workflows by their ids, or pass --all")
            ids = list(dict.fromkeys(options.ids)) or ledger.failed(connection)
            for id in ids:
                resume(connection, id, options.from_step)
            print(f"{len(ids)} resumed")
    return 0


def _work(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.steps import Worker

    queues = dict(_queue(text) for text in options.queue or ["default"])
    flows = _workflows(options.module)
    try:
        worker = Worker(database_of(options, engine), flows, queues=queues, runs_max=options.runs)
    except (ValueError, TypeError) as error:
        raise Failure(str(error)) from error
    if options.drain:
        count = worker.drain()
        print(f"{count} run{'' if count == 1 else 's'}")
        return 0
    names = ", ".join(sorted(flow.name for flow in flows))
    with serving(worker, "steps", f"runs {names} of {', '.join(queues)}", options, engine):
        worker.run()
    return 0


def _queue(text: str) -> tuple[str, int | None]:
    name, equals, number = text.partition("=")
    if not equals:
        return name, None
    try:
        return name, positive(number)
    except argparse.ArgumentTypeError as error:
        raise Failure(f"--queue {text}: {error}") from error


def _workflows(module: str) -> "list[Workflow]":
    from semel.steps import Workflow

    flows = list(dict.fromkeys(one for one in imported(module).values() if isinstance(one, Workflow)))
    if not flows:
        raise Failure(f"module {module!r} has no function under @workflow")
    return flows


def _show(found: "Sequence[Found]", *, as_json: bool) -> None:
    if as_json:
        for one in found:
            print(json.dumps(vars(one)))
        return
    if not found:
        print("there are none")
        return
    rows = [("ID", "WORKFLOW", "QUEUE", "STATE", "DUE", "TRIES", "RESULT")]
    rows += [
        (
            *(one.id, one.workflow, one.queue, one.state, time_shown(one.due_ms), str(one.attempts)),
            NOTHING if one.result is None else json.dumps(one.result)[:80],
        )
        for one in found
    ]
    print_table(rows)
