"""`semel serve`: runs the broker in its own process."""

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from semel.service.supervisor import notify
from semel.ui.cli.beside import Beside, plain_listener
from semel.ui.cli.data_directory import check_directory
from semel.ui.cli.display import tell
from semel.ui.cli.errors import Failure, Fenced
from semel.ui.cli.garbage import Garbage
from semel.ui.cli.input_end import add_until_input_ends, when_input_ends
from semel.ui.cli.listeners import LISTEN_DEFAULT, listeners_of, shown
from semel.ui.cli.metrics import MetricsDoor, add_metrics, metrics_of
from semel.ui.cli.process import age_seconds, keep_freed_memory, raise_open_files
from semel.ui.cli.progress import Progress
from semel.ui.cli.subcommands import count, positive
from semel.ui.cli.tls import add_tls, tls_of
from semel.ui.cli.tokens import add_tokens, tokens_of

if TYPE_CHECKING:
    from semel.log.brokers import Broker, Limits, SecurityLog
    from semel.log.listeners import Listener
    from semel.log.stores import Store

EXAMPLE: Final = "  semel serve --listen 127.0.0.1:9092 --data ./data"

# A limit of more digits would be none, and Python refuses to read very many.
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_LOG: Final = logging.getLogger("semel")


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--config",
        metavar="FILE",
        help='read flags from this file, as TOML: data = "./data"; flags on the command line override it',
    )
    add("--data", required=True, metavar="DIR", help="the directory of the log; it is created if it does not exist")
    add(
        "--must-have-log",
        action="store_true",
        help="refuse to begin a new log: for a directory that has one, and may lie on a disk that is not mounted",
    )
    add(
        "--listen",
        action="append",
        default=[],
        metavar="[NAME=PROTOCOL://]HOST:PORT",
        help=f"the address where clients connect, any number of times; port 0 picks a free one ({LISTEN_DEFAULT})",
    )
    add(
        "--advertise",
        action="append",
        default=[],
        metavar="[NAME=]HOST[:PORT]",
        help="the address that clients of a listener use, if it differs from --listen",
    )
    add_tls(parser)
    add_tokens(parser)
    add(
        "--insecure",
        action="store_true",
        help="allow listeners for other machines whose clients may read and change everything, or send it unencrypted",
    )
    add(
        "--access-rules",
        action="store_true",
        help="deny every request that no access rule allows (semel acls), even if all listeners are PLAINTEXT",
    )
    add(
        "--super-user",
        action="append",
        default=[],
        metavar="User:NAME",
        help="a principal that may do everything, whatever the access rules say; any number of times",
    )
    add(
        "--security-log",
        metavar="FILE",
        help="append refused logins, denied requests and changes of rules, users and quotas here, as JSON lines",
    )
    add(
        "--durability",
        choices=("fsync", "os"),
        default="fsync",
        help="answer acks=all when the records are on disk (fsync, the default), or when they are written (os)",
    )
    add(
        "--store",
        metavar="URL",
        help="keep the log in an object store, file:///dir or s3://bucket/prefix, and in --data only a cache that may "
        "be lost; stand by while another broker is active there. A start reads the newest checkpoint and the journal "
        "after it",
    )
    add(
        "--cache-bytes",
        type=positive,
        metavar="N",
        help="with --store: how many bytes of the store --data may cache; the broker fetches the rest when a client "
        "needs it (10737418240)",
    )
    add(
        "--accept-loss",
        action="append",
        default=[],
        metavar="KEY",
        help="with --store: go on without this object, which is lost for ever; a start that misses one names it. A "
        "slot of the journal is given up with all that was written after it; any number of times",
    )
    add(
        "--commit-interval",
        type=count,
        default=0,
        metavar="MS",
        help="with --store: how long a change waits for other changes that share its object (0)",
    )
    add(
        "--lease-seconds",
        type=positive,
        default=3,
        metavar="N",
        help="with --store: how long the active broker may be silent before a standby takes over (3)",
    )
    add_metrics(parser)
    add(
        "--console",
        metavar="HOST:PORT",
        help="start semel console beside the broker, for a browser on this machine, and print the address to open",
    )
    add(
        "--partitions",
        type=positive,
        default=1,
        metavar="N",
        help="partitions of topics created without a number of partitions (1)",
    )
    add(
        "--no-auto-create-topics",
        action="store_true",
        help="do not create topics automatically when a client asks for them",
    )
    add(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a limit, such as connections_max=100; an unknown name lists them all",
    )
    add_until_input_ends(parser)
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="the lowest level to log (warning)",
    )


def run(options: argparse.Namespace) -> int:
    import uvloop

    from semel.log.brokers import Broker, BrokerCutOff
    from semel.log.files import not_promised

    # The files hold records, and what proves passwords: they are for the user of the broker alone.
    os.umask(0o077)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s level=%(levelname)s %(message)s",
        stream=sys.stderr,
    )
    check_directory(options.data, f"name the store with --store {options.data}, and a directory for its cache")
    if options.must_have_log and options.store:
        raise Failure("--must-have-log is for a log in --data: a store is asked whether it has one")
    if options.must_have_log and not os.path.isdir(options.data):
        raise Failure(f"{options.data}: no such directory, and --must-have-log makes none")
    if os.path.exists(options.data) and not os.path.isdir(options.data):
        raise Failure(f"{options.data}: this is a file; --data takes a directory, and makes one that is missing")
    listeners = listeners_of(options.listen, options.advertise, insecure=options.insecure)
    tls = tls_of(options)
    metrics = metrics_of(options)
    if options.console:
        _check_console(options.console, listeners, metrics)
        metrics = metrics or MetricsDoor("127.0.0.1", 0, over_tls=False, login=None)
    limits = _limits(options.limit)
    for sentence in not_promised():
        _LOG.warning("not promised on %s: %s", os.uname().sysname, sentence)
    raise_open_files()
    keep_freed_memory()
    garbage = Garbage()
    garbage.begin()

    def opened() -> "tuple[Broker, Store | None]":
        store = _store(options)
        broker = Broker(
            options.data,
            listeners=listeners,
            insecure=options.insecure,
            tls=tls,
            tokens=tokens_of(options),
            durability=options.durability,
            store=store,
            commit_interval_seconds=options.commit_interval / 1000,
            lease_seconds=options.lease_seconds,
            cache_bytes=_cache_bytes(options),
            accepted_losses=options.accept_loss,
            auto_create_topics=not options.no_auto_create_topics,
            partitions_default=options.partitions,
            access_rules=options.access_rules,
            super_users=[_principal(text) for text in options.super_user],
            security_log=_security_log(options.security_log),
            limits=limits,
            must_have_log=options.must_have_log,
        )
        return broker, store

    with _readable_errors(options):
        broker, store = opened()
        # Recover before the signal handlers are set: a signal may end the recovery at once, because the next start
        # repeats it.
        if not options.store:
            progress = Progress("recovering")
            broker.recover(on_progress=progress.show)
            progress.end()
        garbage.keep()
        while True:
            try:
                if not uvloop.run(_serve(broker, store, garbage, metrics, options)):
                    return 0
            except BrokerCutOff:
                # It was told why already.
                pass
            # It begins again from what is in the store, at the same ports, and stands by.
            listeners = broker.listeners
            broker, store = opened()


async def _serve(
    broker: "Broker",
    store: "Store | None",
    garbage: Garbage,
    metrics: MetricsDoor | None,
    options: argparse.Namespace,
) -> bool:
    """Serve until the broker has stopped; return whether it is to begin again, because it has resigned."""
    loop = asyncio.get_running_loop()
    stop = loop.create_future()

    def asked_to_stop() -> None:
        if stop.done():
            # A second signal stops the broker at once. Acknowledged records are durable either way.
            os._exit(1)
        stop.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop)
    if options.until_input_ends:
        # Unlike a second signal, the end of the input never stops the broker at once.
        when_input_ends(loop, lambda: None if stop.done() else stop.set_result(None))
    if broker.doors.uses_tls:
        loop.add_signal_handler(signal.SIGHUP, broker.doors.reload_certificates)
    starting = loop.create_task(_start(broker, store))
    # A store that does not answer holds nobody up who wants to stop the broker, which has acknowledged nothing yet.
    await asyncio.wait((stop, starting), return_when="FIRST_COMPLETED")
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    garbage.look_from_time_to_time(loop)
    metrics_server = console = None
    stands_by_since: float | None = None
    metrics_place = ""
    try:
        if metrics is not None:
            with _listening(options.metrics):
                metrics_server = await metrics.open(broker, insecure=options.insecure)
            port = metrics_server.sockets[0].getsockname()[1]
            metrics_place = f", metrics on {metrics.shown(port)}"
            if options.console:
                console = Beside(options.console, plain_listener(broker.listeners), (metrics.host, port), tell)
        if not broker.role.is_active:
            where = shown(broker.listeners)
            tell(f"semel standing by on {where}{metrics_place}, active is {broker.active_bootstrap}")
            notify("READY=1", f"STATUS=standing by, active is {broker.active_bootstrap}")
            stands_by_since = loop.time()
            await asyncio.wait((stop, broker.failed, broker.activated), return_when="FIRST_COMPLETED")
        if broker.activated.done():
            _tell_ready(broker, metrics_place, None if stands_by_since is None else loop.time() - stands_by_since)
            notify("READY=1", f"STATUS=serving clients on {shown(broker.listeners)}")
            if console is not None:
                await console.start()
            await asyncio.wait((stop, broker.failed, broker.resigned), return_when="FIRST_COMPLETED")
    finally:
        if stop.done():
            notify("STOPPING=1")
        if console is not None:
            await console.stop()
        if metrics_server is not None:
            metrics_server.close()
        await broker.stop()
    if broker.failed.done():
        broker.failed.result()
    return broker.resigned.done() and not stop.done()


async def _start(broker: "Broker", store: "Store | None") -> None:
    """Probe the store, and start the broker. If that fails, or is cancelled, close the store."""
    try:
        if store is not None:
            from semel.log.stores import probe_at_start

            await probe_at_start(store)
        with _listening():
            await broker.start()
    except BaseException:
        if store is not None:
            await store.close()
        raise


def _check_console(address: str, listeners: "list[Listener]", metrics: MetricsDoor | None) -> None:
    from semel.ui.cli.addresses import listening_address
    from semel.wire.hosts import is_loopback

    host, _ = listening_address(address)
    if not is_loopback(host):
        raise Failure(f"--console {address} can be reached from other machines: run semel console with --insecure")
    plain_listener(listeners)
    if metrics is not None and (metrics.over_tls or metrics.login is not None):
        raise Failure("--console asks for decisions without TLS and without a login: run semel console beside it")


def _store(options: argparse.Namespace) -> "Store | None":
    """The store that --store names, if it is given."""
    from semel.log.stores import open_store

    if not options.store:
        if options.commit_interval:
            raise Failure("--commit-interval is for a broker on a store: it needs --store URL")
        if options.cache_bytes is not None:
            raise Failure("--cache-bytes is for a broker on a store: it needs --store URL")
        if options.accept_loss:
            raise Failure("--accept-loss is for a broker on a store: it needs --store URL")
        return None
    if options.durability == "os":
        raise Failure("--durability os is for a log in --data: a store answers when an object is durable")
    return open_store(options.store)


def _cache_bytes(options: argparse.Namespace) -> int:
    """How many bytes of the store the disk may cache."""
    from semel.log.brokers import CACHE_BYTES, CACHE_BYTES_MIN

    wanted: int = CACHE_BYTES if options.cache_bytes is None else options.cache_bytes
    if wanted < CACHE_BYTES_MIN:
        raise Failure(f"--cache-bytes {wanted} is too small: active clients need {CACHE_BYTES_MIN} at least")
    return wanted


@contextlib.contextmanager
def _readable_errors(options: argparse.Namespace) -> Iterator[None]:
    """A context in which every error that keeps the broker from serving becomes one line."""
    from semel.log.at_rest import Cached, Damaged, Lost, Misfit, OwnLog, StillInJournal
    from semel.log.brokers import BrokerFailed, BrokerFenced, CertificatesRefused, TokensRefused
    from semel.log.listeners import ListenersRefused
    from semel.log.status import BrokenHistory
    from semel.log.stores import StoreError

    try:
        yield
    except BrokerFenced as error:
        raise Fenced(str(error)) from None
    except (StoreError, BrokenHistory) as error:
        raise Failure(f"the store cannot be used: {error}") from None
    except (BrokerFailed, CertificatesRefused, ListenersRefused, TokensRefused) as error:
        raise Failure(str(error)) from None
    except Misfit as error:
        way_on = f"semel repair {options.data} shows a way on"
        raise Failure(f"the data directory cannot be used: {error}; {way_on}") from None
    except Lost as error:
        way_on = f"bring the file back, or see semel repair {options.data} for a way on without it"
        raise Failure(f"the data directory cannot be used: {error}; {way_on}") from None
    except Cached as error:
        raise Failure(f"{error}; name the store with --store URL") from None
    except OwnLog as error:
        raise Failure(
            f"{error}; semel move --from {options.data} --to {options.store} makes it the log there"
        ) from None
    except StillInJournal as error:
        raise Failure(f"the disk failed: {error}") from None
    except Damaged as error:
        raise Failure(f"the data directory cannot be used: {error}; bring it back, or restore a backup") from None
    except BlockingIOError:
        raise Failure(f"{options.data} is in use by another broker: stop that one, or name another directory") from None
    except OSError as error:
        raise Failure(f"{error.filename or options.data}: {error.strerror or error}") from None


@contextlib.contextmanager
def _listening(address: str = "") -> Iterator[None]:
    """A context in which an error of listening at this address, or at the one in the error, becomes one line."""
    try:
        yield
    except socket.gaierror as error:
        raise Failure(f"cannot listen on {error.filename or address}: {error.strerror}") from None
    except OSError as error:
        address = error.filename or address
        if error.errno == errno.EADDRINUSE:
            raise Failure(f"{address} is in use; choose another port, or 0 for any") from None
        reason = os.strerror(error.errno) if error.errno else error
        raise Failure(f"cannot listen on {address}: {reason}") from None


def _tell_ready(broker: "Broker", metrics_place: str, standby_seconds: float | None) -> None:
    """`standby_seconds` is how long this broker stood by before: that is no part of its start."""
    how = f"in {age_seconds():.2f} s" if standby_seconds is None else f"after {standby_seconds:.0f} s on standby"
    role = f" (active, epoch {broker.role.epoch})" if broker.role.epoch else ""
    tell(f"semel ready on {shown(broker.listeners)} {how}{role}{metrics_place}")


def _security_log(path: str | None) -> "SecurityLog | None":
    from semel.log.brokers import SecurityLog

    try:
        return SecurityLog(path) if path is not None else None
    except OSError as error:
        raise Failure(f"{path}: the security log cannot be written: {error.strerror}") from None


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise Failure(f"{text!r} is not a principal: write a type and a name, as in User:admin")
    return text


def _limits(assignments: list[str]) -> "Limits":
    from semel.log.brokers import Limits

    names = [field.name for field in fields(Limits)]
    values: dict[str, int] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in names:
            raise Failure(f"there is no limit {name!r}; there are {', '.join(names)}")
        if _NUMBER.fullmatch(value) is None:
            raise Failure(f"limit {name} takes a whole number, not {value!r}")
        values[name] = int(value)
    return Limits(**values)
