"""The planted bugs of the HTTP keys, as those of the broker in `bugs.py`."""

from typing import Final

from bugs import Bug

_FRAMEWORKS: Final = "tests/http/test_frameworks.py"
_MIDDLEWARE: Final = "tests/http/test_http_middleware.py"
_RACES: Final = "tests/http/test_http_races.py"
_STEPS: Final = "tests/http/test_http_steps.py"

HTTP_BUGS: Final[tuple[Bug, ...]] = (
    # -- the claim: once, of this caller, with the effect -----------------------------------------------------------
    Bug(
        "a key is looked for and then inserted",
        "semel.http.claims",
        "    if _inserted(connection, name, fingerprint, times):\n",
        "    if connection.scalar(_ROW, _of(name)) is None:\n        _inserted(connection, name, fingerprint, times)\n",
        (_RACES,),
    ),
    Bug(
        "a second request waits for the first one's transaction",
        "semel.http.claims",
        '    return func.pg_try_advisory_xact_lock(bindparam("lock", type_=BigInteger))',
        '    return bindparam("lock", type_=BigInteger).is_not(None)',
        (_RACES, "-k", "kept_waiting", "--timeout=10"),
    ),
    Bug(
        "the claim is committed before the effect",
        "semel.http.holding",
        "            self._token = outcome.token\n",
        "            self._token = outcome.token\n"
        "            yield self._transaction.commit()\n"
        "            yield self._transaction.start(lambda connection: None)\n",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "a key is everybody's",
        "semel.http.claims",
        '    return Name(hashlib.sha256(caller.encode("utf-8", "surrogatepass")).hexdigest(), key)',
        '    return Name("", key)',
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "a claim that somebody committed without its answer is executed again",
        "semel.http.claims",
        "    if row.status is not None or row.lease_until_ms == NO_LEASE:",
        "    if row.status is not None:",
        (_MIDDLEWARE, "-k", "sqlite and ends_the_transaction"),
    ),
    # -- payloads that differ are told apart ----------------------------------------------------------------------
    Bug(
        "numbers are compared as floating point",
        "semel.http.fingerprint",
        "parse_float=_Number",
        "parse_float=float",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "of a repeated member the last one counts",
        "semel.http.fingerprint",
        "object_pairs_hook=_Object",
        "object_pairs_hook=lambda members: _Object(dict(members).items())",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "parts of a fingerprint run into each other",
        "semel.http.fingerprint",
        '        digest.update(len(part).to_bytes(8, "big"))\n',
        "",
        ("tests/http/test_fingerprint.py",),
    ),
    Bug(
        "quotes belong to the key",
        "semel.http.key",
        '        return _ESCAPED.sub(r"\\1", quoted[1])',
        "        return field",
        ("tests/http/test_key_header.py",),
    ),
    # -- the answer: committed before it is sent, and nobody else's --------------------------------------------------
    Bug(
        "the session of one visitor is replayed to another",
        "semel.http.answers",
        'b"set-cookie", ',
        "",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "an answer leaves before its effect is committed",
        "semel.http.asgi",
        '        status = self._start["status"]\n',
        '        status = self._start["status"]\n        await self._send(self._start)\n',
        (_MIDDLEWARE, "-k", "sqlite and cannot_commit"),
    ),
    Bug(
        "a handler that failed is not tried again",
        "semel.http.idempotency",
        "        if status >= 500 or",
        "        if status >= 600 or",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "who is sent elsewhere has used up the key",
        "semel.http.idempotency",
        " or status in _ELSEWHERE:",
        ":",
        (_MIDDLEWARE, "-k", "sqlite and elsewhere"),
    ),
    Bug(
        "a refusal keeps half an effect",
        "semel.http.idempotency",
        "    return status < 400",
        "    return status < 500",
        (_FRAMEWORKS, "-k", "sqlite and flask"),
    ),
    Bug(
        "a stream is gone before its effect is committed",
        "semel.http.asgi",
        "                await self._settle_unkept()\n                await self._send_body(",
        "                self._is_settled = True\n                await self._send(self._start)\n"
        "                await self._send_body(",
        (_MIDDLEWARE, "-k", "sqlite and single"),
    ),
    Bug(
        "a cancelled request keeps its transaction",
        "semel.http.holding",
        "            except BaseException as error:\n                step",
        "            except Exception as error:\n                step",
        (_MIDDLEWARE, "-k", "sqlite and while_it_commits", "--timeout=10"),
    ),
    # -- steps: done once, and by nobody who is late -----------------------------------------------------------------
    Bug(
        "who is late writes all the same",
        "semel.http.claims",
        "_OF_HOLDER: Final = update(keys).where(*_OF_NAME, _OF_TOKEN, keys.c.status.is_(None))",
        '_OF_HOLDER: Final = update(keys).where(*_OF_NAME, bindparam("of_token", type_=BigInteger).is_not(None))',
        (_STEPS, "-k", "sqlite and late"),
    ),
    Bug(
        "a step is done again",
        "semel.http.steps",
        "        self.first = found is None",
        "        self.first = True",
        (_STEPS, "-k", "sqlite and not_executed_again"),
    ),
    Bug(
        "each try calls outside under another key",
        "semel.http.steps",
        "[self.name.scope, self.name.key, step]",
        "[self.name.scope, self.name.key, step, id(self)]",
        (_STEPS, "-k", "sqlite and not_executed_again"),
    ),
    Bug(
        "the heart does not beat",
        "semel.http.heartbeat",
        "                drive(lease.beat())",
        "                pass",
        (_STEPS, "-k", "sqlite and heart", "--timeout=10"),
    ),
    Bug(
        "the reaper takes a key that somebody holds",
        "semel.http.claims",
        "    due = keys.c.expires_ms <= now_ms, keys.c.lease_until_ms <= now_ms",
        "    due = (keys.c.expires_ms <= now_ms,)",
        ("tests/http/test_http_reaper.py",),
    ),
)
