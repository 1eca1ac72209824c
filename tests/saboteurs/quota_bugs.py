"""The planted bugs of quotas."""

from typing import Final

from saboteurs.planting import Bug

_RATES: Final = "tests/log/core/test_rates.py"
_QUOTAS: Final = "tests/log/core/test_quotas.py"
_THROTTLING: Final = "tests/log/broker/test_throttling.py"

QUOTA_BUGS: Final[tuple[Bug, ...]] = (
    # -- which one counts ---------------------------------------------------------------------------------------------
    Bug(
        "the quota of a client id goes before that of its user",
        "semel.log.core.quotas:Quotas.limit",
        "(((USER, user),), (user, ''))",
        "(((CLIENT_ID, client_id),), ('', client_id))",
        (f"{_QUOTAS}::test_the_first_quota_that_is_set_counts_in_the_order_of_apache_kafka",),
    ),
    Bug(
        "a default user and client id go before a user",
        "semel.log.core.quotas:Quotas.limit",
        "(((USER, user),), (user, ''))",
        "(((USER, None), (CLIENT_ID, None)), (user, client_id))",
        (f"{_QUOTAS}::test_the_first_quota_that_is_set_counts_in_the_order_of_apache_kafka",),
    ),
    Bug(
        "an entity that lacks a key hides those behind it",
        "semel.log.core.quotas:Quotas.limit",
        "values is not None and key in values",
        "values is not None",
        (f"{_QUOTAS}::test_each_key_is_looked_for_by_itself",),
    ),
    Bug(
        "a checkpoint leaves the quotas out",
        "semel.log.core.state:State.begin_snapshot",
        "self.quotas.snapshot()",
        "[]",
        ("tests/crash/test_administration_crashes.py",),
    ),
    Bug(
        "a quota that was taken away is back after a kill",
        "semel.log.core.quotas:Quotas.apply",
        "self._quotas.pop(entry.entity, {})",
        "self._quotas.get(entry.entity, {})",
        ("tests/crash/test_administration_crashes.py",),
    ),
    Bug(
        "a checkpoint has the quotas of the one before it",
        "semel.log.core.quotas:Quotas.apply",
        "self._part = None",
        "pass",
        ("tests/log/storage/test_cached_parts.py",),
    ),
    Bug(
        "an address counts as it is written",
        "semel.log.core.quotas:Quotas.connections_per_second",
        "canonical_host(address)",
        "address.upper()",
        (f"{_QUOTAS}::test_an_address_has_the_quota_of_its_own_or_the_default_however_it_is_written",),
    ),
    # -- what may be set ----------------------------------------------------------------------------------------------
    Bug(
        "what cannot be measured is kept and never acted upon",
        "semel.log.core.quotas:_check",
        "key not in keys",
        "False",
        (f"{_QUOTAS}::test_what_no_quota_may_be_is_refused",),
    ),
    Bug(
        "a quota that is taken away stays",
        "semel.log.core.quotas:Quotas.apply",
        "if entry.quotas: ...",
        "if True: ...",
        (f"{_QUOTAS}::TestQuotas",),
    ),
    Bug(
        "what one request says twice of an entity is done twice",
        "semel.log.broker.apis.alter_client_quotas:_change",
        "if is_named_twice: ...",
        "if False: ...",
        (f"{_THROTTLING}::test_each_entity_is_changed_by_itself_and_one_that_is_named_twice_is_not",),
    ),
    Bug(
        "a request that is only to be tried changes quotas",
        "semel.log.broker.apis.alter_client_quotas:_change",
        "change is not None and not validate_only",
        "change is not None",
        (f"{_THROTTLING}::test_each_entity_is_changed_by_itself_and_one_that_is_named_twice_is_not",),
    ),
    # -- measuring ----------------------------------------------------------------------------------------------------
    Bug(
        "the window of a rate never slides",
        "semel.log.core.rates:Rate._forget",
        "now_ms - self._windows[0].last_ms >= AGE_MS_MAX",
        "False",
        (f"{_RATES}::test_after_eleven_seconds_nothing_is_held_against_a_client", _RATES),
    ),
    Bug(
        "the time before the first window does not count",
        "semel.log.core.rates:Rate._span_ms",
        "elapsed_ms + missing * WINDOW_MS",
        "max(elapsed_ms, 1)",
        (f"{_RATES}::test_what_is_allowed_in_ten_seconds_may_be_used_at_once_and_one_more_may_not",),
    ),
    Bug(
        "each connection has a quota of its own",
        "semel.log.broker.throttle:Throttle._record",
        "self._rates.of((key, limit.bucket))",
        "self._rates.of((key, (str(exchange.connection.number), '')))",
        (f"{_THROTTLING}::test_connections_of_one_client_use_its_quota_up_together",),
    ),
    Bug(
        "a flood of names fills the memory with measurements",
        "semel.log.broker.throttle:Rates.of",
        "len(self._rates) >= self._rates_max",
        "False",
        (f"{_THROTTLING}::test_measurements_are_bounded_and_the_one_used_longest_ago_makes_way",),
    ),
    # -- waiting ------------------------------------------------------------------------------------------------------
    Bug(
        "a client is told to wait, and read all the same",
        "semel.log.broker.connection:Connection._may_serve",
        "not self._muted",
        "True",
        (f"{_THROTTLING}::test_a_producer_over_its_quota_is_answered_at_once_and_read_later",),
    ),
    Bug(
        "a client that has waited is never read again",
        "semel.log.broker.throttle:Throttle._read_on",
        "connection.unmute()",
        "connection.mute()",
        (f"{_THROTTLING}::test_a_producer_over_its_quota_is_answered_at_once_and_read_later",),
    ),
    Bug(
        "a consumer over its quota gets records over every new connection",
        "semel.log.broker.apis.fetch:_answer_over_quota",
        "not throttle_ms",
        "True",
        (f"{_THROTTLING}::test_a_consumer_gets_what_it_may_have_in_ten_seconds_and_then_waits",),
    ),
    Bug(
        "a session whose consumer has to wait is lost",
        "semel.log.broker.apis.fetch:_answer_over_quota",
        "context.session is not None and context.is_incremental",
        "False",
        (f"{_THROTTLING}::test_a_fetch_session_outlives_a_wait",),
    ),
    Bug(
        "an address opens as many connections as it likes",
        "semel.log.broker.throttle:Throttle.admits",
        "return False",
        "return True",
        (f"{_THROTTLING}::test_an_address_opens_no_more_connections_than_its_quota",),
    ),
)
