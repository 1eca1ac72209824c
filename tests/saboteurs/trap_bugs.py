"""The planted bugs of what a new user falls into: effects on another connection, scopes, handlers that do nothing,
and requests without a key."""

from typing import Final

from saboteurs.planting import Bug

_HTTP: Final = "tests/http/test_written_elsewhere.py"
_OWN: Final = "tests/http/test_own_sessions.py"
_INBOX: Final = "tests/inbox/test_effects_elsewhere.py"
_EFFECTS: Final = "tests/database/test_effects.py"
_SCOPE: Final = "tests/http/test_scope.py"
_UNKEYED: Final = "tests/http/test_unkeyed.py"
_DJANGO: Final = "tests/http/test_django_streams.py"
_LOST: Final = "tests/inbox/test_at_most_once.py"

TRAP_BUGS: Final[tuple[Bug, ...]] = (
    # -- effects on another connection ------------------------------------------------------------------------------
    Bug(
        "the orm of django writes beside the claim",
        "semel.database.effects:_djangos_is_made",
        "connection.execute_wrappers.insert(0, _around_djangos)",
        "pass",
        (_HTTP, "-k", "sqlite and another_alias"),
    ),
    Bug(
        "the wrapper of the application stays, and that of semel goes",
        "semel.database.effects:_djangos_is_made",
        "connection.execute_wrappers.insert(0, _around_djangos)",
        "connection.execute_wrappers.append(_around_djangos)",
        (_EFFECTS, "-k", "ends_with_its_block"),
    ),
    Bug(
        "an effect on another connection is let through in the handler of a loop",
        "semel.inbox.confluent:Inbox._handle",
        "effects_on(transaction)",
        "keep_open(handle) and __import__('contextlib').nullcontext()",
        (_INBOX, "-k", "sqlite and session_of_its_own"),
    ),
    Bug(
        "a refusal that the application catches is forgotten",
        "semel.database.effects:Work.refuse",
        "self.refused = error",
        "pass",
        (_HTTP, "-k", "sqlite and catches_the_refusal"),
    ),
    Bug(
        "a session that keeps its changes for its commit is not looked at before the answer",
        "semel.database.effects:Work.check",
        "self.refuse(_refusal_of(changed))",
        "pass",
        (_OWN, "-k", "sqlite and flushes_nothing"),
    ),
    Bug(
        "a session that was begun before the key sends its changes after the answer",
        "semel.database.effects:_sends",
        "work.refuse(_refusal_of(changed))",
        "pass",
        (_OWN, "-k", "postgresql and middleware_that_commits"),
    ),
    Bug(
        "a session that was open before the key is not looked at before the answer",
        "semel.database.effects:Work.begin",
        "_begun_here() if self.has_end else ()",
        "()",
        (_OWN, "-k", "sqlite and open_before_the_key_is_refused"),
    ),
    Bug(
        "a session belongs to the request of a key for ever",
        "semel.database.effects:Work.end",
        "session.info.pop(_WORK, None)",
        "pass",
        (_OWN, "-k", "sqlite and for_all_requests"),
    ),
    Bug(
        "a session that takes the claim's connection from the pool is taken for the claim's",
        "semel.database.effects:_has_connection",
        "_left_by(session) is None",
        "True",
        (_OWN, "-k", "sqlite and behind_the_yield and write"),
    ),
    Bug(
        "the work of a claim never ends",
        "semel.database.effects:effects_on",
        "is_open = False",
        "pass",
        (_INBOX, "-k", "sqlite and cannot_commit"),
    ),
    Bug(
        "a claim without a block commits after a refusal",
        "semel.database.effects:work_on",
        "refuse_commit(its_connection())",
        "None",
        (_INBOX, "-k", "sqlite and without_a_block"),
    ),
    Bug(
        "a claim inside of another one's work is refused",
        "semel.database.effects:writes",
        "not _OF_CLAIMS.search(text)",
        "True",
        (_HTTP, "-k", "sqlite and same_process"),
    ),
    Bug(
        "a step is let write on another connection",
        "semel.steps.recorded:AnyStep._enter",
        "self._work.begin()",
        "pass",
        (_HTTP, "-k", "sqlite and in_a_step"),
    ),
    # -- callers that share a name ----------------------------------------------------------------------------------
    Bug(
        "the address of a proxy is a caller",
        "semel.http.callers:_is_behind_proxy",
        "any(name in headers for name in _OF_PROXIES)",
        "False",
        (_SCOPE, "-k", "sqlite and no_caller"),
    ),
    Bug(
        "an address with a port is a caller",
        "semel.http.callers:checked_caller",
        "caller in ports",
        "False",
        (_SCOPE, "-k", "sqlite and with_its_port"),
    ),
    Bug(
        "all strangers are one caller",
        "semel.http.callers:checked_caller",
        "caller.strip() in _NOBODY",
        "False",
        (_SCOPE, "-k", "sqlite and text_of_nobody"),
    ),
    Bug(
        "commits that returns nothing undoes the effect of a success",
        "semel.http.answers:_wish",
        "not isinstance(wish, bool | Fate)",
        "False",
        (_SCOPE, "-k", "sqlite and forgets_to_return"),
    ),
    # -- events that are lost ---------------------------------------------------------------------------------------
    Bug(
        "a handler that returns a coroutine counts as done",
        "semel.inbox.confluent:_check_done",
        "inspect.isawaitable(result)",
        "False",
        (_LOST, "-k", "sqlite and returns_a_coroutine"),
    ),
    Bug(
        "a client that commits by itself is taken",
        "semel.inbox.brokers:checked_config",
        "str(settings.get(name)).lower() in _TRUE",
        "settings.get(name) is True",
        (_LOST, "-k", "however_it_is_written"),
    ),
    Bug(
        "a topic without ids is put aside as a whole",
        "semel.inbox.loop:Loop._check_identities",
        "self._without_identity += 1",
        "pass",
        (_LOST, "-k", "sqlite and ends_and_says_why"),
        seconds_max=10,
    ),
    # -- without a key ----------------------------------------------------------------------------------------------
    Bug(
        "what a GET has changed is lost without a word",
        "semel.http.unkeyed:_check_reads",
        "writes(statement)",
        "False",
        (_UNKEYED, "-k", "sqlite and get_that_changes"),
    ),
    Bug(
        "what fails commits without a key",
        "semel.http.unkeyed:Unkeyed.settle",
        "fate is Fate.KEPT",
        "True",
        (_UNKEYED, "-k", "sqlite and commits_nothing"),
    ),
    Bug(
        "the answer to a request without a key leaves before the commit",
        "semel.http.unkeyed:Unkeyed.settle",
        "yield self._transaction.commit()",
        "return",
        (_UNKEYED, "-k", "sqlite and one_dependency"),
    ),
    # -- Django's own middleware ------------------------------------------------------------------------------------
    Bug(
        "a stream is kept as an empty answer of django",
        "semel.http.django.middleware:IdempotencyMiddleware._kept",
        "response.streaming",
        "False",
        (_DJANGO, "-k", "sqlite and stream"),
    ),
    Bug(
        "an answer of django leaves although it was not settled",
        "semel.http.django.middleware:IdempotencyMiddleware._execute",
        "drive(settled(holder, fate, response.status_code, self._kept(response, headers)))",
        "None",
        (_DJANGO, "-k", "sqlite and stream"),
    ),
    Bug(
        "keys on an engine beside the orm pass the check",
        "semel.http.django.configuration:configured",
        "alias_of(found) is None",
        "False",
        ("tests/django_app/test_django_checks.py", "-k", "sqlite and would_not_commit"),
    ),
    Bug(
        "a transaction that Django will roll back is answered as if it were not",
        "semel.http.django.atomic:_Transaction._transaction",
        "undone or connection.needs_rollback",
        "undone",
        ("tests/django_app/test_django_events.py", "-k", "sqlite and django_undoes"),
    ),
    Bug(
        "a message is added in a block that Django will roll back",
        "semel.django.outbox:in_atomic",
        "connection.validate_no_broken_transaction()",
        "pass",
        ("tests/django_app/test_django_events.py", "-k", "sqlite and commit_with_nothing"),
    ),
    Bug(
        "a message commits with nothing",
        "semel.django.outbox:in_atomic",
        "not connection.in_atomic_block",
        "False",
        ("tests/django_app/test_django_events.py", "-k", "sqlite and commit_with_nothing"),
    ),
    Bug(
        "the coroutine of a handler is awaited by nobody",
        "semel.django.inbox:Handler._handle",
        "iscoroutinefunction(self.function)",
        "False",
        ("tests/django_app/test_django_events.py", "-k", "sqlite and coroutine"),
    ),
)
