"""The questions of the console, and whom it asks: the cluster, databases, kept audits, a store, a trial.

A question must never change anything: changes have their own table, with the function that makes the plan of each. If
the console was started without a source, its questions are refused with the option that names it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from semel.client.cluster import Cluster
from semel.ui.console import access, groups, overview, pipelines, producers, records, topics, transactions
from semel.ui.console.askers import Askers
from semel.ui.console.http import PageRefused
from semel.ui.console.live import PAUSE_FACTOR
from semel.ui.console.plans import carry_out, show
from semel.ui.console.query import Query

CLUSTER: Final = "cluster"
DATABASES: Final = "databases"
AUDITS: Final = "audits"
STORE: Final = "store"
TRIAL: Final = "trial"

_MISSING: Final = {
    DATABASES: "the console was given no database: start it with --database URL",
    AUDITS: "the console was given no audits: start it with --audits DIR, where semel audit --keep DIR keeps them",
    STORE: "the console was given no store: start it with --store URL",
    TRIAL: "there is no trial: start the console with --trial DIR",
}


class Question(NamedTuple):
    """A question, a plan or a change: its source, and its function."""

    source: str
    ask: Callable[[Any, Query], Any]
    # A smaller factor is for a question that mostly waits, and takes up little of its source's time.
    pause_factor: float = PAUSE_FACTOR


def _of_cluster(ask: Callable[[Cluster, Query], Any]) -> Question:
    return Question(CLUSTER, lambda view, query: ask(view.cluster, query))


def _of_databases(name: str) -> Question:
    return Question(DATABASES, lambda databases, query: databases.settle(name, query))


QUESTIONS: Final[Mapping[str, Question]] = {
    "overview": _of_cluster(overview.now),
    "topics": _of_cluster(topics.every_topic),
    "topic": _of_cluster(topics.one_topic),
    "records": _of_cluster(records.some_records),
    "piece": _of_cluster(records.piece_of_record),
    "transactions": _of_cluster(transactions.open_transactions),
    "producers": Question(CLUSTER, lambda view, query: producers.of_topic(view.cluster, query, view.door)),
    "groups": _of_cluster(groups.every_group),
    "group": Question(CLUSTER, lambda view, query: groups.one_group(view.cluster, query, view.door)),
    "access": _of_cluster(access.everybody),
    "pipelines": _of_cluster(pipelines.every_sink),
    "claims": Question(DATABASES, lambda databases, query: databases.every(query)),
    "audits": Question(AUDITS, lambda audits, query: audits.every(query)),
    "audit": Question(AUDITS, lambda audits, query: audits.one(query)),
    "standbys": Question(STORE, lambda stores, query: stores.status(query), pause_factor=1),
}
# Answers that are files: a name, and its bytes.
FILES: Final[Mapping[str, Question]] = {"record": _of_cluster(records.file_of_record)}
# Each change by the function that makes its plan.
PLANNERS: Final[Mapping[str, Question]] = {
    "abort": _of_cluster(transactions.abort),
    "create_topic": _of_cluster(topics.create),
    "grow_topic": _of_cluster(topics.grow),
    "configure_topic": _of_cluster(topics.configure),
    "delete_topic": _of_cluster(topics.delete),
    "reset": _of_cluster(groups.reset),
    "delete_group": _of_cluster(groups.delete),
    "add_rule": _of_cluster(access.add_rule),
    "remove_rule": _of_cluster(access.remove_rule),
    "set_password": _of_cluster(access.set_password),
    "remove_user": _of_cluster(access.remove_user),
    **{name: _of_databases(name) for name in ("outbox_retry", "outbox_drop", "inbox_retry", "inbox_drop")},
    "strike": Question(TRIAL, lambda trial, query: trial.strike(query)),
    "lose": Question(TRIAL, lambda trial, query: trial.lose(query)),
    "calm": Question(TRIAL, lambda trial, query: trial.calm(query)),
    "kill": Question(TRIAL, lambda trial, query: trial.kill(query)),
}
PLANS: Final = {name: Question(one.source, partial(show, one.ask)) for name, one in PLANNERS.items()}
CHANGES: Final = {name: Question(one.source, partial(carry_out, one.ask)) for name, one in PLANNERS.items()}


class Sources:
    """The sources of this console, each asked in its own threads."""

    def __init__(self, given: Mapping[str, Askers[Any]]) -> None:
        self._askers = given

    def has(self, source: str) -> bool:
        return source in self._askers

    async def ask(self, question: Question, query: Query) -> Any:
        """The answer; PageRefused if the console was started without the source."""
        if question.source not in self._askers:
            raise PageRefused(404, _MISSING[question.source])
        return await self._askers[question.source].ask(lambda source: question.ask(source, query))
