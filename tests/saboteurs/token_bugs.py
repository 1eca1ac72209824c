"""The planted bugs of tokens (OAUTHBEARER)."""

from typing import Final

from saboteurs.planting import Bug

_TOKENS: Final = "tests/log/security/test_tokens.py"
_BEARER: Final = "tests/log/security/test_oauthbearer.py"
_CLAIMS: Final = f"{_TOKENS}::test_what_a_token_claims_is_looked_at"
_SIGNED: Final = f"{_TOKENS}::test_a_token_that_the_provider_has_not_signed_like_this_is_refused"
_KEYS: Final = f"{_TOKENS}::test_a_key_that_is_for_something_else_is_none"
_ONCE: Final = f"{_TOKENS}::test_an_unknown_key_is_looked_for_once_a_minute_and_the_old_ones_stay"
_NONE: Final = f"{_TOKENS}::test_without_keys_nobody_enters_and_the_provider_is_asked_once_a_minute"

TOKEN_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "keys are fetched again only when somebody logs in",
        "semel.log.broker.doors:Doors.look_at_credentials",
        "self._tokens.refresh()",
        "None",
        (f"{_BEARER}::test_keys_are_looked_at_even_if_nobody_logs_in",),
    ),
    Bug(
        "a provider that sends headers for ever is listened to for ever",
        "semel.log.broker.token_keys:fetch",
        "context.sslsocket_class = _ending(time.monotonic() + seconds_max)",
        "context.sslsocket_class = ssl.SSLSocket",
        (f"{_TOKENS}::test_a_provider_that_never_comes_to_the_content_is_left_after_some_time",),
        seconds_max=8.0,
    ),
    Bug(
        "the signature is not looked at",
        "semel.log.security.tokens",
        '"verify_signature": True',
        '"verify_signature": False',
        (_SIGNED,),
    ),
    Bug(
        "a token that has expired lets in",
        "semel.log.security.tokens:_judged",
        "now_seconds >= until",
        "False",
        (_CLAIMS,),
    ),
    Bug(
        "the audience is not looked at",
        "semel.log.security.tokens:_judged",
        "settings.audience != audience and not _",
        "False and not _",
        (_CLAIMS,),
    ),
    Bug(
        "an audience that begins with the right one will do",
        "semel.log.security.tokens:_judged",
        "settings.audience in audience",
        "any(str(one).startswith(settings.audience) for one in audience)",
        (_CLAIMS,),
    ),
    Bug(
        "the issuer is not looked at",
        "semel.log.security.tokens:_judged",
        "claims.get('iss') != settings.issuer",
        "False",
        (_CLAIMS,),
    ),
    Bug(
        "a token is good before its time",
        "semel.log.security.tokens:_judged",
        "'nbf' in claims and _",
        "False and _",
        (_CLAIMS,),
    ),
    Bug(
        "a time that is no number is one",
        "semel.log.security.tokens:_seconds",
        "isinstance(value, bool) or not isinstance(value, int | float)",
        "value is None",
        (_CLAIMS,),
    ),
    Bug(
        "a key is used for what it is not for",
        "semel.log.security.tokens:_fits",
        "key.get('use', 'sig') == 'sig'",
        "True",
        (_KEYS,),
    ),
    Bug(
        "a key is used with an algorithm that is not its own",
        "semel.log.security.tokens:_fits",
        "key.get('alg', algorithm) == algorithm",
        "True",
        (_KEYS,),
    ),
    Bug(
        "a client may act as another user than its token names",
        "semel.log.security.login:Login._take_token",
        "acting not in (None, bearer.user)",
        "False",
        (f"{_BEARER}::test_nobody_acts_as_somebody_else",),
    ),
    Bug(
        "a login outlives its token",
        "semel.log.security.login:Login._take_token",
        "self.proven_until_seconds = bearer.until_seconds",
        "self.proven_until_seconds = None",
        (f"{_BEARER}::test_a_login_lasts_as_long_as_its_token",),
    ),
    Bug(
        "each unknown key is looked for at once",
        "semel.log.broker.token_keys:TokenKeys.refresh",
        "now - self._asked_at >= FETCH_EVERY_SECONDS",
        "True",
        (
            _ONCE,
            _NONE,
        ),
    ),
    Bug(
        "a provider that answers garbage takes the keys away",
        "semel.log.broker.token_keys:TokenKeys._take",
        "self._is_under_way = False",
        "self._is_under_way, self._keys = False, {}",
        (_ONCE,),
    ),
    Bug(
        "an unknown key is never looked for",
        "semel.log.broker.token_keys:TokenKeys.check",
        "self._is_wanted = True",
        "self._is_wanted = False",
        (_ONCE,),
    ),
    Bug(
        "a key that was taken away lets in for ever",
        "semel.log.broker.token_keys:TokenKeys.refresh",
        "now - self._fetched_at >= REFRESH_SECONDS",
        "False",
        (f"{_TOKENS}::test_keys_are_fetched_again_after_an_hour",),
    ),
    Bug(
        "a provider may point to the keys of somebody else",
        "semel.log.broker.token_keys:_NoRedirects.redirect_request",
        "return None",
        "return super().redirect_request(*_, **__)",
        (f"{_TOKENS}::test_keys_come_over_tls_that_is_trusted_and_never_from_where_a_provider_points",),
    ),
)
