"""The planted bugs of the HTTP keys."""

from typing import Final

from saboteurs.planting import Bug

_COUNTED: Final = "tests/http/test_http_counted.py"
_FRAMEWORKS: Final = "tests/http/test_frameworks.py"
_MIDDLEWARE: Final = "tests/http/test_http_middleware.py"
_RACES: Final = "tests/http/test_http_races.py"
_STEPS: Final = "tests/http/test_http_steps.py"

HTTP_BUGS: Final[tuple[Bug, ...]] = (
    # -- the claim: once, of this caller, with the effect -----------------------------------------------------------
    Bug(
        "a handler that has ended its transaction gets the framework's own answer, which names no path",
        "semel.http.holders:settled",
        "early if status >= 500 else None",
        "None",
        ("tests/http/test_ended_too_early.py", "-k", "its_path and sqlite-engine-flask-raised"),
    ),
    Bug(
        "who finds the database away gets a traceback",
        "semel.http.holders:claimed",
        "is_passing(error) or is_no_answer(error)",
        "False",
        ("tests/http/test_database_away.py", "-k", "sqlite and transaction or coroutine"),
    ),
    Bug(
        "a key is looked for and then inserted",
        "semel.http.claims:_claimed",
        "token = _inserted(connection, name, fingerprint, term, at_ms)",
        """
        token = None
        if connection.scalar(_ROW, _of(name)) is None:
            token = _inserted(connection, name, fingerprint, term, at_ms) or 0
        """,
        (_RACES,),
    ),
    Bug(
        "a second request waits for the first one's transaction",
        "semel.http.claims:_Locking.__init__",
        'dialect.try_lock(_given("lock"))',
        '_given("lock").is_not(None)',
        (_RACES, "-k", "kept_waiting and postgresql"),
        seconds_max=5,
    ),
    Bug(
        "a step keeps who repeats its request waiting",
        "semel.http.claims:_Locking.__init__",
        '_OF_HOLDER.where(dialect.wait_for_lock(_given("lock")))',
        '_OF_HOLDER.where(_given("lock").is_not(None))',
        (_RACES, "-k", "a_step_is_open and database and committed"),
        seconds_max=5,
    ),
    Bug(
        "the claim is committed before the effect",
        "semel.http.holders:InTransaction.claim",
        "self._token = outcome.token",
        """
        self._token = outcome.token
        yield self._transaction.commit()
        yield self._transaction.start(lambda connection: None)
        """,
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "a key does not belong to one caller",
        "semel.http.claims:name_of",
        'hashlib.sha256(caller.encode("utf-8", "surrogatepass")).hexdigest()',
        '""',
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "a claim that somebody committed without its answer is executed again",
        "semel.http.claims:_claimed",
        "row.status is not None or row.lease_until_ms == NO_LEASE",
        "row.status is not None",
        ("tests/http/test_http_races.py", "-k", "sqlite and without_its_answer"),
    ),
    Bug(
        "a request that runs longer than an answer is kept is executed a second time meanwhile",
        "semel.http.claims:_claimed",
        "row.expires_ms <= at_ms and (row.status is not None or row.lease_until_ms <= at_ms)",
        "row.expires_ms <= at_ms",
        (_STEPS, "-k", "runs_longer and sqlite"),
    ),
    # -- payloads that differ are told apart ----------------------------------------------------------------------
    Bug(
        "numbers are compared as floating point",
        "semel.http.requests:canonical_json",
        "parse_float=marked",
        "parse_float=float",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "of a repeated member the last one counts",
        "semel.http.requests:canonical_json",
        "object_pairs_hook=_Object",
        "object_pairs_hook=lambda members: _Object(dict(members).items())",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "parts of a fingerprint run into each other",
        "semel.http.requests:fingerprint",
        'digest.update(len(part).to_bytes(8, "big"))',
        "",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "quotes belong to the key",
        "semel.http.requests:_unquoted",
        r'_ESCAPED.sub(r"\1", quoted[1])',
        "field",
        ("tests/http/test_key_header.py",),
    ),
    # -- the answer: committed before it is sent, and nobody else's -------------------------------------------------
    Bug(
        "the session of one visitor is replayed to another",
        "semel.http.answers:_NEVER_KEPT",
        'b"set-cookie"',
        "",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "an answer is kept from the beginning of its request",
        "semel.http.claims:keep",
        '{**values, "expires_ms": at_ms + term.ttl_ms}',
        "values",
        (_COUNTED, "-k", "sqlite and however_long"),
    ),
    Bug(
        "an answer leaves before its effect is committed",
        "semel.http.asgi:_Exchange._settle",
        'status = self._start["status"]',
        """
        status = self._start["status"]
        await self._send(self._start)
        """,
        (_MIDDLEWARE, "-k", "sqlite and cannot_commit"),
    ),
    Bug(
        "a handler that failed is not tried again",
        "semel.http.answers:fate_of",
        "status >= 500",
        "status >= 600",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "who is sent elsewhere has used up the key",
        "semel.http.answers:fate_of",
        "status in _ELSEWHERE",
        "False",
        (_MIDDLEWARE, "-k", "sqlite and elsewhere"),
    ),
    Bug(
        "a failure that the application keeps is executed again",
        "semel.http.answers:fate_of",
        "keeps is not None and status >= 400",
        "keeps is not None and status >= 600",
        ("tests/http/test_http_counted.py", "-k", "sqlite and replayed"),
    ),
    Bug(
        "nobody is told of a mail that may have been sent twice",
        "semel.steps.rules:standing",
        "noted == STEP_BEGUN",
        "False",
        ("tests/http/test_http_counted.py", "-k", "sqlite and without_a_key"),
    ),
    Bug(
        "a caller goes on asking during an outage",
        "semel.http.client:_Pace.call",
        "not self.budget.take()",
        "False",
        ("tests/http/test_http_client.py", "-k", "sqlite and storm"),
    ),
    Bug(
        "a failure that was kept is asked for again",
        "semel.http.attempts:meaning_of",
        "is_replayed(headers)",
        "False",
        ("tests/http/test_http_counted.py", "-k", "sqlite and replayed"),
    ),
    Bug(
        "a refusal keeps half an effect",
        "semel.http.answers:commits_success",
        "status < 400",
        "status < 500",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "a stream is gone before its effect is committed",
        "semel.http.asgi:_Exchange._add",
        """
        await self._settle_unkept()
        await self._send_body(more=_)
        """,
        """
        self._is_settled = True
        await self._send(self._start)
        await self._send_body(more=_)
        """,
        (_MIDDLEWARE, "-k", "sqlite and single"),
        seconds_max=5,
    ),
    Bug(
        "a cancelled request keeps its transaction",
        "semel.database.procedures:drive_async",
        "except BaseException as error: ...",
        "except Exception as error: ...",
        (_STEPS, "-k", "cancelled_lets_go"),
        seconds_max=5,
    ),
    # -- steps: done once, and by nobody who is late ----------------------------------------------------------------
    Bug(
        "whoever is late makes the call of a step, as the next holder does",
        "semel.steps.recorded:Recording.look",
        "self.hold(connection)",
        "",
        (_STEPS, "-k", "does_not_begin_the_call and sqlite"),
    ),
    Bug(
        "a worker that lost its lease still writes",
        "semel.http.claims:_OF_HOLDER",
        "update(keys).where(*_OF_NAME, _OF_TOKEN, keys.c.status.is_(None))",
        'update(keys).where(*_OF_NAME, bindparam("of_token", type_=BigInteger).is_not(None))',
        (_STEPS, "-k", "sqlite and late"),
    ),
    Bug(
        "a step is done again",
        "semel.steps.rules:standing",
        "Standing(False, False, json.loads(noted))",
        "Standing(True, False, json.loads(noted))",
        (_STEPS, "-k", "sqlite and not_executed_again"),
    ),
    Bug(
        "a second step of the same name is skipped",
        "semel.steps.recorded:AnyStep._finish",
        "recording.done.add(self._name)",
        "pass",
        (_STEPS, "-k", "sqlite and second_step"),
    ),
    Bug(
        "each attempt calls the other service under another key",
        "semel.steps.recorded:Recording.derived_key",
        "derived_key(self.name.scope, self.name.key, step)",
        "derived_key(self.name.scope, self.name.key, step, str(id(self)))",
        (_STEPS, "-k", "sqlite and not_executed_again"),
    ),
    Bug(
        "the heart does not beat",
        "semel.steps.heartbeat:_beat_until",
        "drive(lease.beat())",
        "seconds",
        (_STEPS, "-k", "sqlite and heart"),
        seconds_max=5,
    ),
    Bug(
        "the heart waits for a step in a transaction of its own",
        "semel.steps.recorded:Recording.beat",
        "not self.is_locked and (yield from briefly(self._new_beat, hold))",
        "(yield from briefly(self._new_beat, self.hold)) is None",
        (_RACES, "-k", "heart_waits"),
        seconds_max=10,
    ),
    Bug(
        "the reaper takes a key that somebody holds",
        "semel.http.claims:reap_batch",
        "keys.c.lease_until_ms <= now_ms",
        "",
        ("tests/http/test_http_reaper.py",),
    ),
    # -- an answer is kept when it is whole, and speaks of the effect -----------------------------------------------
    Bug(
        "an answer is taken for whole when its last message comes",
        "semel.http.asgi:_Exchange._add",
        "answer.promised_bytes == len(answer.body)",
        "True",
        ("tests/http/test_half_answers.py", "-k", "raises_leaves_nothing"),
    ),
    Bug(
        "an answer shorter than its length passes for a whole one",
        "semel.http.asgi:_Exchange._settle_at_return",
        "answer.check_whole()",
        "None",
        ("tests/http/test_half_answers.py", "-k", "shorter_than_its_length"),
    ),
    Bug(
        "who went away while the answer streamed has had it",
        "semel.http.asgi:_Exchange._settle_at_return",
        "not self._has_ended or self._is_settled or self._receive.has_told_of_end",
        "not self._has_ended or self._is_settled",
        ("tests/http/test_half_answers.py",),
    ),
    Bug(
        "who has to wait has used up the key",
        "semel.http.answers:_NOT_OF_THE_EFFECT",
        "{401, 403, 405, 406, 407, 408, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426, 428, 429, 431}",
        "{401, 403, 405, 406, 407, 408, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426, 428, 431}",
        ("tests/http/test_fates.py",),
    ),
    Bug(
        "a refusal that says when to come again is kept",
        "semel.http.answers:_says_come_again",
        "status >= 400 and any(name == b'retry-after' for name, _ in headers)",
        "False",
        ("tests/http/test_fates.py",),
    ),
    Bug(
        "a commit is believed without a look",
        "semel.steps.transactions:confirmed",
        "if not was_committed: ...",
        "if False: ...",
        ("tests/http/test_django.py", "-k", "rolls_back_instead"),
    ),
    Bug(
        "a block that Django undid without an error counts as done",
        "semel.http.django.atomic:_Transaction._transaction",
        "undone or connection.needs_rollback",
        "connection.needs_rollback",
        ("tests/http/test_django.py", "-k", "undoes_without_an_error"),
    ),
    # -- half an answer is none, and an error ends neither lease nor heartbeat --------------------------------------
    Bug(
        "a lease is noted after it is committed",
        "semel.http.holders:Leased._claim",
        "self._token = outcome.token",
        "pass",
        (_STEPS,),
    ),
    Bug(
        "a late holder is counted only if its error leaves the application",
        "semel.http.steps:KeySteps.hold",
        'self.tally.count("fenced")',
        "",
        (_COUNTED, "-k", "sqlite and framework_answers"),
    ),
    Bug(
        "a request that is never answered is not counted",
        "semel.http.holders:tallied",
        'holder.tally.count("forgotten")',
        "",
        (_COUNTED, "-k", "sqlite and never_answered"),
    ),
    Bug(
        "one error ends the heartbeat",
        "semel.steps.heartbeat:_outlived",
        """
        except Exception as error:
            ...
        """,
        """
        except ZeroDivisionError:
            pass
        """,
        ("tests/http/test_http_steps.py::test_a_beat_that_finds_no_connection_is_followed_by_the_next",),
    ),
    Bug(
        "leases go by the clock of the application",
        "semel.http.idempotency:Idempotency.lease_term",
        "self._given_now_ms",
        "self.clock()",
        ("tests/http/test_http_steps.py::test_leases_go_by_the_clock_of_the_database",),
    ),
    Bug(
        "an answer that was cut short under WSGI is kept",
        "semel.http.wsgi:_Exchange._execute",
        "answer.check_whole()",
        "None",
        (
            "tests/http/test_half_answers.py::test_an_answer_of_wsgi_shorter_than_its_length_leaves_nothing_and_can_be_repeated",
        ),
    ),
    Bug(
        "an error of the interface passes by itself",
        "semel.database.errors:_verdict",
        "isinstance(error, OperationalError) and error.statement is None if verdict is None else verdict",
        "True if verdict is None else verdict",
        ("tests/inbox/test_contention.py::test_what_never_passes_is_put_aside",),
    ),
    Bug(
        "a group of errors passes where its first one does",
        "semel.database.errors:singly",
        "for member in group.exceptions: ...",
        "yield from singly(group.exceptions[0])",
        ("tests/inbox/test_contention.py", "-k", "never_passes"),
    ),
    Bug(
        "a key is kept by the clock of the application",
        "semel.http.idempotency:Idempotency.term",
        "self._given_now_ms",
        "self.clock()",
        ("tests/http/test_http_middleware.py", "-k", "kept_by_the_clock and postgresql"),
    ),
    Bug(
        "Django's transaction is begun in another thread than the view's",
        "semel.http.idempotency:Idempotency.check_loop",
        "if self._is_of_one_thread: ...",
        "",
        ("tests/http/test_django.py", "-k", "another_thread and postgresql"),
    ),
    Bug(
        "ids of strangers send commands to a terminal",
        "semel.ui.cli.display:print_table",
        "rows = [[*map(printable, row)] for row in rows]",
        "",
        ("tests/inbox/test_inbox_command.py",),
    ),
    # -- after the answer, and beside the transaction ----------------------------------------------------------------
    Bug(
        "a session begins anew after the answer",
        "semel.steps.transactions:_refuse",
        'getattr(_begins, "here", False)',
        "True",
        ("tests/http/test_after_the_answer.py", "-k", "starlette and sqlite"),
    ),
    Bug(
        "a session is refused once, and then goes on with what it has begun",
        "semel.steps.transactions:_refuse",
        "transaction.close()",
        "",
        ("tests/http/test_after_the_answer.py", "-k", "starlette and sqlite"),
    ),
    Bug(
        "a handler that works beside its key is told of by nobody",
        "semel.http.holders:InTransaction.was_asked",
        "self._was_asked or self.idempotency.is_used_by_others(self._transaction)",
        "True",
        ("tests/http/test_unasked.py", "-k", "told_of_once and sqlite and flask"),
    ),
    Bug(
        "what is refused for working beside its key is kept all the same",
        "semel.http.holders:settled",
        "yield from holder.release()",
        "yield from holder.settle(fate, status, answer)",
        ("tests/http/test_unasked.py", "-k", "nothing_is_kept and sqlite and flask"),
    ),
    # -- loops, large bodies, and second connections ----------------------------------------------------------------
    Bug(
        "each loop has places of its own",
        "semel.steps.slots:Slots.acquire",
        "not self._waiters and self._is_free_for(loop)",
        "True",
        ("tests/http/test_loops.py", "-k", "order_of_arrival"),
        seconds_max=20,
    ),
    Bug(
        "a place of a loop that was closed is lost",
        "semel.steps.slots:Slots._hand_on",
        "not loop.is_closed()",
        "True",
        ("tests/http/test_loops.py", "-k", "was_closed_and_of_a_task"),
        seconds_max=20,
    ),
    Bug(
        "a place is lost to a task that is cancelled in its turn",
        "semel.steps.slots:Slots.acquire",
        "self._taken.remove(loop)",
        "",
        ("tests/http/test_loops.py", "-k", "was_closed_and_of_a_task"),
        seconds_max=20,
    ),
    Bug(
        "a large body holds up the loop",
        "semel.http.idempotency:Idempotency.fingerprint_async",
        "len(body) <= FINGERPRINT_HERE_BYTES_MAX",
        "True",
        ("tests/http/test_loops.py", "-k", "beside_the_loop and sqlite"),
    ),
    Bug(
        "of members with one name only the last counts",
        "semel.http.requests:canonical_json",
        '_quotes(canonical.replace(_BACKSLASH_ESCAPE, "")) - 2 * numbers == _quotes(escapes)',
        "True",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "a handler waits on SQLite for its own transaction",
        "semel.database.writers:check_no_own_writer",
        "writer.file != file",
        "True",
        ("tests/http/test_loops.py", "-k", "session_of_a_coroutine and sqlite"),
        seconds_max=20,
    ),
    Bug(
        "a session passes for the database of the keys",
        "semel.steps.transactions:check_database",
        'hasattr(database, "begin") or isinstance(database, type) or not callable(database)',
        "not callable(database)",
        ("tests/database/test_kinds.py", "-k", "http_keys and Session"),
    ),
    Bug(
        "a handler may commit the transaction of its key",
        "semel.steps.transactions:Transaction.start",
        "keep_open(self._handle)",
        "(lambda kept: kept.release() or kept)(keep_open(self._handle))",
        ("tests/http/test_ended_too_early.py", "-k", "sqlite-engine-commit"),
    ),
)
