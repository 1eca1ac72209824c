"""The planted bugs of listeners, TLS and logins."""

from typing import Final

from saboteurs.planting import Bug

_SCRAM: Final = "tests/security/test_scram.py"
_LOGINS: Final = "tests/security/test_broker_logins.py"
_TLS: Final = "tests/security/test_tls.py"
_NAMES: Final = "tests/security/test_names.py"
_USERS: Final = "tests/core/test_users.py"
_HOSTS: Final = "tests/security/test_hosts.py"
_LIMITS: Final = "tests/broker/test_limits.py"
_CLIENT: Final = "tests/client/test_logins.py"
_METRICS: Final = "tests/broker/test_metrics_login.py"
_LOG: Final = "tests/broker/test_security_log.py"
_SECRETS: Final = "tests/security/test_planted_secrets.py"

SECURITY_BUGS: Final[tuple[Bug, ...]] = (
    # -- the exchange -------------------------------------------------------------------------------------------------
    Bug(
        "the proof of a password is not compared",
        "semel.security.scram:ScramExchange._final",
        "is_proven and is_current and len(proof) == len(signature)",
        "is_current",
        (f"{_SCRAM}::test_another_implementation_stays_out_with_a_wrong_password",),
    ),
    Bug(
        "the second message of a login proves a password that was changed since the first one",
        "semel.security.scram:ScramExchange._final",
        "self._users.is_current(self.name, self._mechanism, credential)",
        "self._mechanism in self._users.credentials(self.name)",
        (f"{_SCRAM}::test_a_password_that_changes_between_the_two_messages_lets_nobody_in",),
    ),
    Bug(
        "a password that changes while it is hashed lets in by PLAIN",
        "semel.security.login:_check_plain",
        "users.is_current(user, mechanism, credential)",
        "mechanism in users.credentials(user)",
        (f"{_LOGINS}::test_a_password_that_changes_while_it_is_hashed_lets_nobody_in",),
    ),
    Bug(
        "finished is taken for authenticated",
        "semel.security.scram:ScramExchange._first",
        "self.name = unescaped(match['name'])",
        "self.user = self.name = unescaped(match['name'])",
        (f"{_SCRAM}::test_another_implementation_gets_in_with_the_right_password_and_believes_the_answer",),
    ),
    Bug(
        "the nonce of the second message is not looked at",
        "semel.security.scram:ScramExchange._final",
        "_decoded(match['header']) != self._header.encode() or match['nonce'] != self._nonce",
        "False",
        (f"{_SCRAM}::test_the_header_and_the_nonce_of_the_second_message_are_those_of_the_first",),
    ),
    Bug(
        "a client may act as another user",
        "semel.security.scram:ScramExchange._first",
        "unescaped(match['acting']) != self.name",
        "False",
        (f"{_SCRAM}::test_a_first_message_that_asks_for_what_is_not_there_is_refused",),
    ),
    Bug(
        "the salt of an unknown user is another one for each log, but known to everybody",
        "semel.core.users:Users.credential_for",
        "self.secret",
        "b''",
        (f"{_SCRAM}::test_a_user_who_does_not_exist_has_a_salt_that_stays_the_same_and_cannot_be_told_from_a_user",),
    ),
    Bug(
        "an unknown user is told by the number of iterations",
        "semel.core.users:Users.credential_for",
        "max(counts, key=counts.__getitem__, default=ITERATIONS_MIN)",
        "ITERATIONS_MIN - 1",
        (_USERS, _SCRAM),
    ),
    Bug(
        "too few iterations are taken",
        "semel.core.users:Users.decide_set",
        "ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX",
        "0 < credential.iterations <= ITERATIONS_MAX",
        (f"{_USERS}::test_a_credential_that_cannot_be_kept_is_refused",),
    ),
    Bug(
        "a user who was removed comes back with the next checkpoint",
        "semel.core.users:Users.apply",
        "credentials.pop(mechanism, None)",
        "credentials.get(mechanism)",
        (_USERS,),
    ),
    Bug(
        "a checkpoint leaves the users out",
        "semel.core.state:State.begin_snapshot",
        "self.users.snapshot()",
        "{}",
        ("tests/crash/test_administration_crashes.py",),
    ),
    Bug(
        "a checkpoint has the users of the one before it",
        "semel.core.users:Users.apply",
        "self._part = None",
        "pass",
        ("tests/storage/test_cached_parts.py",),
    ),
    Bug(
        "a password that changes while a checkpoint is written gets into it",
        "semel.core.users:Users.apply",
        "dict(self.credentials(entry.user))",
        "self._credentials.setdefault(entry.user, {})",
        ("tests/storage/test_cached_parts.py",),
    ),
    # -- the login of a connection ------------------------------------------------------------------------------------
    Bug(
        "requests are served before a login",
        "semel.security.login:check_login",
        "api_key not in BEFORE_LOGIN and not login.is_valid_at(now_ms)",
        "False",
        (f"{_LOGINS}::test_before_a_login_a_client_may_ask_for_nothing_else",),
    ),
    Bug(
        "a login that was begun counts as one",
        "semel.security.login:Login.is_over",
        "self._used is not None",
        "self._used is not None or self._chosen is not None",
        (f"{_LOGINS}::test_a_login_that_was_begun_is_not_one",),
    ),
    Bug(
        "a login never expires",
        "semel.security.login:Login.is_valid_at",
        "now_ms < self.expires_at_ms",
        "True",
        (f"{_LOGINS}::test_a_login_expires_and_a_client_that_repeats_it_goes_on",),
    ),
    Bug(
        "a connection becomes another user's",
        "semel.security.login:Login._finish",
        "self.is_over and principal != self.principal",
        "False",
        (f"{_LOGINS}::test_a_login_is_repeated_over_the_same_connection_and_the_user_stays",),
    ),
    Bug(
        "PLAIN takes any password of a user",
        "semel.security.login:_check_plain",
        "hmac.compare_digest(stored.stored_key, credential.stored_key) and is_current",
        "is_current",
        (f"{_TLS}::test_a_wrong_password_by_plain_is_refused",),
    ),
    Bug(
        "PLAIN is taken in the clear",
        "semel.security.listeners:Listener.mechanisms",
        "MECHANISMS if self.protocol.uses_tls else tuple(SCRAM_MECHANISMS)",
        "MECHANISMS",
        (f"{_LOGINS}::test_plain_is_not_taken_where_it_could_be_read_on_the_way",),
    ),
    Bug(
        "a plain listener is open to everybody",
        "semel.security.hosts:is_loopback",
        "ip_address(host).is_loopback",
        "True",
        (f"{_LOGINS}::test_a_broker_in_a_program_refuses_a_plain_listener_beyond_the_loopback",),
    ),
    Bug(
        "TLS that asks nobody who it is puts no access rules in force",
        "semel.broker.doors:Doors.__init__",
        "any((listener.protocol is not SecurityProtocol.PLAINTEXT for listener in listeners))",
        "self._asks_for_logins",
        (f"{_TLS}::test_where_tls_asks_no_client_who_it_is_strangers_may_do_nothing",),
    ),
    Bug(
        "whoever shows no certificate is a super user on every network",
        "semel.broker.doors:Doors.__init__",
        "not insecure and str(ANONYMOUS) in super_users",
        "False",
        (f"{_TLS}::test_strangers_on_other_machines_are_super_users_only_where_the_operator_insists",),
    ),
    Bug(
        "a certificate that is only requested counts as one that was shown",
        "semel.broker.doors:Doors.__init__",
        "tls.client_auth is ClientAuth.REQUIRED",
        "tls.client_auth is not ClientAuth.NONE",
        (f"{_TLS}::test_strangers_on_other_machines_are_super_users_only_where_the_operator_insists",),
    ),
    Bug(
        "any name in a Host header is this machine's own",
        "semel.security.hosts:is_own_host",
        "ip_address(name)",
        "pass",
        (f"{_HOSTS}::test_any_other_name_may_have_been_made_to_resolve_to_this_machine",),
    ),
    Bug(
        "strangers are not counted by address",
        "semel.broker.doors:Doors.has_space",
        "of_address < self._limits.unknown_connections_per_address_max",
        "True",
        (f"{_LOGINS}::test_so_many_strangers_may_be_connected_and_those_who_log_in_make_room",),
    ),
    Bug(
        "an address that ends none of its large requests gets all the memory for them",
        "semel.broker.receive_buffer:ReceiveMemory._has_space",
        "self._of_address[buffer.address] + more_bytes <= free",
        "True",
        (f"{_LIMITS}::test_large_requests_that_never_end_keep_nobody_at_another_address_waiting",),
    ),
    Bug(
        "a large request that never ends takes the space of the others",
        "semel.broker.receive_buffer:ReceiveMemory._has_space",
        "self.beyond.large_bytes",
        "0",
        (f"{_LIMITS}::test_large_requests_that_never_end_keep_nobody_at_another_address_waiting",),
    ),
    Bug(
        "strangers of all addresses together are not limited",
        "semel.broker.doors:Doors.has_space",
        "len(self.strangers) < self._limits.unknown_connections_max",
        "True",
        (f"{_LOGINS}::test_strangers_of_all_addresses_together_are_limited",),
    ),
    Bug(
        "a stranger may ask without end",
        "semel.broker.connection:Connection._serve",
        "self._frames_served > self.host.limits.login_requests_max",
        "False",
        (f"{_LOGINS}::test_a_stranger_may_ask_a_few_times_and_a_user_as_often_as_it_likes",),
    ),
    Bug(
        "all requests of a stranger are served before anybody else's",
        "semel.broker.connection:Connection._serve_frames",
        "self._frames_served > frames_served and self.is_unknown",
        "False",
        (f"{_LOGINS}::test_requests_that_a_stranger_sends_at_once_are_served_in_a_turn_each",),
    ),
    Bug(
        "all passwords of strangers are queued to be hashed",
        "semel.security.login:Login.respond",
        "self._hashing.inside(_check_plain(user, password, self._users))",
        "_check_plain(user, password, self._users)",
        (f"{_LOGINS}::test_one_password_is_hashed_at_a_time",),
    ),
    Bug(
        "our client does not notice that its login has expired",
        "semel.client.cluster:Cluster.lease",
        "connection.has_expired",
        "False",
        (f"{_LOGINS}::test_our_client_goes_on_when_its_login_has_expired",),
    ),
    Bug(
        "a name that a client chose reaches the terminal as it is",
        "semel.cli.dump_state:show",
        "printable(line)",
        "line",
        ("tests/cli/test_dump.py", "-k", "no_name"),
    ),
    Bug(
        "who logs in stays a stranger",
        "semel.broker.doors:Doors.note_known",
        "self.strangers.remove(connection)",
        "pass",
        (f"{_LOGINS}::test_so_many_strangers_may_be_connected_and_those_who_log_in_make_room",),
    ),
    # -- TLS ----------------------------------------------------------------------------------------------------------
    Bug(
        "a client without a certificate comes in where one is required",
        "semel.broker.certificates:_context",
        "ssl.CERT_REQUIRED",
        "ssl.CERT_OPTIONAL",
        (f"{_TLS}::test_a_client_without_a_certificate_or_with_a_strangers_stays_out_where_one_is_required",),
    ),
    Bug(
        "a rule matches a part of a subject",
        "semel.security.names:_rule",
        "compiled.fullmatch(subject)",
        "compiled.match(subject)",
        (f"{_NAMES}::test_a_rule_matches_the_whole_subject_or_not_at_all",),
    ),
    Bug(
        "a subject is written in the order of the certificate",
        "semel.security.names:subject_of",
        "reversed(relative_names)",
        "relative_names",
        (f"{_NAMES}::test_a_subject_is_written_as_java_writes_it",),
    ),
    Bug(
        "a certificate that was replaced is never noticed",
        "semel.broker.certificates:Certificates.has_changed",
        "self._look() != self._stamps",
        "False",
        (f"{_TLS}::test_certificates_are_read_again_when_they_change_and_garbage_keeps_the_old_ones",),
    ),
    Bug(
        "a handshake that does not end counts for nothing",
        "semel.broker.connection:Connection.is_unknown",
        "self._is_shaking_hands or (self.login is not None and not self.login.is_over)",
        "self.login is not None and not self.login.is_over",
        (f"{_TLS}::test_a_handshake_that_never_ends_is_sent_away_and_counts_as_a_stranger",),
        seconds_max=15,
    ),
    # -- our own client, the metrics and the security log -------------------------------------------------------------
    Bug(
        "a broker that asks for one iteration is given a proof",
        "semel.client.sasl:_scram",
        "ITERATIONS_MIN <= iterations <= ITERATIONS_MAX",
        "0 < iterations <= ITERATIONS_MAX",
        (f"{_CLIENT}::test_a_broker_that_does_not_keep_to_scram_is_left",),
    ),
    Bug(
        "the metrics are told without a login",
        "semel.security.basic:BasicLogin.is_in",
        "scheme.lower() == 'basic' and hmac.compare_digest(sent_credentials, expected.encode())",
        "True",
        (_METRICS,),
    ),
    Bug(
        "a password of the metrics is good from its first letters on",
        "semel.security.basic:BasicLogin.is_in",
        "hmac.compare_digest(sent_credentials, expected.encode())",
        "sent_credentials.startswith(expected.encode()[:20])",
        (_METRICS,),
    ),
    Bug(
        "a client of the metrics has to show a certificate",
        "semel.broker.doors:Doors.tls_context",
        "self._certificates.plain_context",
        "self._certificates.context",
        (_METRICS,),
    ),
    Bug(
        "a stranger's name fills the disk",
        "semel.broker.security_log:clipped",
        "len(value) > TEXT_CHARACTERS_MAX",
        "False",
        (f"{_LOG}::test_long_names_are_cut_and_take_no_more_of_the_disk_than_short_ones",),
    ),
    Bug(
        "long lines of refusals have no limit",
        "semel.broker.security_log:_Period.has_room",
        "is_refusal and self.bytes + line_bytes > BYTES_MAX",
        "False",
        (f"{_LOG}::test_long_names_are_cut_and_take_no_more_of_the_disk_than_short_ones",),
    ),
    Bug(
        "the warning of a password in a URL repeats it",
        "semel.cli.databases:warn_of_password",
        "_SHOWS_PASSWORD",
        "url",
        (f"{_SECRETS}::test_a_command_warns_of_a_password_in_the_url_of_a_database_and_does_not_repeat_it",),
    ),
    Bug(
        "an answer over TLS cannot be lost",
        "semel.chaos.proxy:_is_tls_data",
        "frame[0] == _TLS_DATA",
        "False",
        ("tests/chaos/test_proxy_over_tls.py",),
    ),
    Bug(
        "what was decrypted before an invalid record is dropped",
        "semel.broker.tls:TlsLayer._decrypt_into",
        "self._secured.buffer_updated(count)",
        "error is None and self._secured.buffer_updated(count)",
        ("tests/security/test_tls_layer.py",),
    ),
    Bug(
        "what TLS answers to a client that reads nothing is kept",
        "semel.broker.tls:TlsLayer._decrypt",
        "self._transport.get_write_buffer_size() > UNASKED_BYTES_MAX",
        "False",
        ("tests/security/test_tls_layer.py",),
    ),
)
