"""`semel quotas`: how much a user, a client id or an address may use of a cluster, semel's or Apache Kafka's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from semel.client import codes
from semel.client.cluster import Cluster
from semel.log.rules import BUSY, CLIENT_ID, CONNECTED, FETCHED, IP, PRODUCED, USER
from semel.ui.cli.cluster import add_bootstrap, cluster_at
from semel.ui.cli.display import print_table, printable
from semel.ui.cli.errors import Failure
from semel.ui.cli.subcommands import add_subcommand
from semel.wire import kafka
from semel.wire.errors import ErrorCode

EXAMPLE: Final = f"""  semel quotas set user:app {PRODUCED}=1048576 {FETCHED}=2097152
  semel quotas set user:app client-id:reports {BUSY}=10
  semel quotas set ip {CONNECTED}=20
  semel quotas remove user:app"""

_KINDS: Final = (USER, CLIENT_ID, IP)
_KEYS: Final = (PRODUCED, FETCHED, BUSY, CONNECTED)

Entity = dict[str, str | None]


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, purpose: str, more: str = "") -> None:
        own = add_subcommand(actions, name, purpose)
        if more:
            own.add_argument(
                "words",
                nargs="+",
                metavar="ENTITY|QUOTA",
                help=f"user:NAME, client-id:NAME, both, or ip:ADDRESS; without a name the default; then {more}",
            )
        add_bootstrap(own)

    action("list", "show every quota that is set")
    action("set", "set quotas, replacing those of the same key", f"KEY=VALUE, among {', '.join(_KEYS)}")
    action("remove", "remove quotas", "the keys to remove (all)")


def run(options: argparse.Namespace) -> int:
    act: dict[str, Callable[[Cluster, argparse.Namespace], None]] = {"list": _list, "set": _set, "remove": _remove}
    with cluster_at(options) as cluster:
        act[options.action](cluster, options)
    return 0


def _list(cluster: Cluster, _: argparse.Namespace) -> None:
    rows = [("ENTITY", "QUOTA", "PER SECOND")]
    for entity, values in _quotas_of(cluster):
        rows += [(_shown(entity), key, f"{value:.15g}") for key, value in sorted(values.items())]
    print_table([rows[0], *sorted(rows[1:])])


def _set(cluster: Cluster, options: argparse.Namespace) -> None:
    entity, rest = _entity_of(options.words)
    values = dict(map(_value, rest))
    if not values:
        raise Failure(f"say which quota: KEY=VALUE, among {', '.join(_KEYS)}")
    _alter(cluster, entity, [_op(key, value) for key, value in values.items()])
    print(f"{_shown(entity)} has {', '.join(rest)}")


def _remove(cluster: Cluster, options: argparse.Namespace) -> None:
    entity, keys = _entity_of(options.words)
    held = next((values for one, values in _quotas_of(cluster) if one == entity), {})
    missing = [key for key in keys if key not in held]
    if missing or not held:
        raise Failure(f"{_shown(entity)} has no quota {', '.join(missing)}".rstrip())
    _alter(cluster, entity, [_op(key, None) for key in keys or held])
    print(f"removed: {_shown(entity)} {', '.join(keys or held)}")


def _entity_of(words: list[str]) -> tuple[Entity, list[str]]:
    """The entity that the words name, and the other words."""
    entity: Entity = {}
    rest = []
    for word in words:
        kind, colon, name = word.partition(":")
        if kind not in _KINDS:
            rest.append(word)
        elif kind in entity or (colon and not name):
            raise Failure(f"{printable(word)!r}: say each of {', '.join(_KINDS)} once, with a name or without a colon")
        else:
            entity[kind] = name if colon else None
    if not entity:
        raise Failure(f"say for whom: {', '.join(f'{kind}:NAME' for kind in _KINDS)}; without a name the default")
    return entity, rest


def _value(word: str) -> tuple[str, float]:
    key, _, text = word.partition("=")
    try:
        return key, float(text)
    except ValueError:
        raise Failure(f"{printable(word)!r} is no quota: write KEY=VALUE, with a number") from None


def _quotas_of(cluster: Cluster) -> list[tuple[Entity, Mapping[str, float]]]:
    answer = cluster.ask_controller(
        kafka.describe_client_quotas.DescribeClientQuotasRequest(components=(), strict=False)
    )
    _check(answer.error_code, answer.error_message, "DescribeConfigs")
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _alter(cluster: Cluster, entity: Entity, ops: list[kafka.alter_client_quotas.OpData]) -> None:
    api = kafka.alter_client_quotas
    parts = [api.RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    entries = [api.RequestEntryData(entity=parts, ops=ops)]
    answer = cluster.ask_controller(api.AlterClientQuotasRequest(entries=entries, validate_only=False))
    for entry in answer.entries:
        _check(entry.error_code, entry.error_message, "AlterConfigs")


def _op(key: str, value: float | None) -> kafka.alter_client_quotas.OpData:
    """Set this quota, or remove it if it is None."""
    return kafka.alter_client_quotas.OpData(key=key, value=value or 0, remove=value is None)


def _check(code: int, message: str | None, right: str) -> None:
    if code != ErrorCode.NONE:
        raise codes.refusal("the quotas", code, message, right=f"{right} on the cluster")


def _shown(entity: Entity) -> str:
    named = ((kind, entity[kind]) for kind in _KINDS if kind in entity)
    return " ".join(kind if name is None else f"{kind}:{printable(name)}" for kind, name in named)
