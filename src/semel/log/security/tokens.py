"""Tokens of OAUTHBEARER (RFC 7628): a JWT that an identity provider has signed says who the client is, and until when.

A token is valid if its key belongs to the provider, the operator allows its algorithm for this key, its signature is
right, its issuer and audience are the configured ones, and it has not expired. A token names its key (`kid`); no other
key is tried, and no key is taken from the token itself. Nothing here may read a clock, a file or a socket, and no
message may contain a part of a token.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from semel.log.core.users import NAME_BYTES_MAX
from semel.log.security.scram import unescaped
from semel.wire.refusals import SASL_AUTHENTICATION_FAILED, Refused

OAUTHBEARER: Final = "OAUTHBEARER"
# The supported algorithms, each with its kind of key, and for elliptic curves the curve. Algorithms with shared secrets
# (HS256) are missing on purpose: anybody with the key to check a token could also make one.
ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
ALGORITHMS_DEFAULT: Final = ("RS256", "ES256")
# How far two clocks may differ, as in Apache Kafka (sasl.oauthbearer.clock.skew.seconds).
SKEW_SECONDS: Final = 30
# Providers have two or three keys.
KEYS_MAX: Final = 100
# The parameters that checking needs. Some sets hold the private part as well, which is ignored.
_PUBLIC: Final = frozenset(("kty", "crv", "n", "e", "x", "y"))
# The year 9999: a later time is not valid.
_SECONDS_MAX: Final = 253_402_300_800
# The client's one message: the user it wants to act as, then pairs, one of which is the token. Kafka calls the others
# extensions; they are ignored here.
_HEADER: Final = re.compile(r"n,(?:a=(?P<acting>[^,]+))?,")
_PAIR: Final = re.compile(r"(?P<name>[A-Za-z]+)=(?P<value>.*)", re.DOTALL)
_AUTH: Final = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9_.=-]+) *")
_BETWEEN: Final = "\x01"


class TokensRefused(ValueError):
    """Tokens cannot be checked with these settings; the message says why."""


@dataclass(frozen=True)
class TokenSettings:
    """The requirements for tokens, and where the provider's keys are: a file, or an https URL."""

    keys: str
    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ALGORITHMS_DEFAULT
    # The claim that names the user.
    user_claim: str = "sub"

    def __post_init__(self) -> None:
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise TokensRefused(f"{name!r} is no algorithm for tokens: there is {', '.join(ALGORITHMS)}")
        if not (self.issuer and self.audience and self.user_claim and self.algorithms):
            raise TokensRefused("tokens need an issuer, an audience, an algorithm and the claim that names the user")
        if "://" in self.keys and not self.keys.startswith("https://"):
            raise TokensRefused(f"the keys of tokens are in a file or under a URL with https://, not {self.keys}")


class Bearer(NamedTuple):
    """The user whom a token names, and when it expires, in seconds since 1970."""

    user: str
    until_seconds: float


# The keys by their name and by an algorithm that they may be used with.
Keys = Mapping[tuple[str, str], Any]


def keys_of(content: bytes, algorithms: tuple[str, ...]) -> Keys:
    """The usable keys of a JSON Web Key Set; TokensRefused if there are none."""
    jwt = _jwt()
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TokensRefused("this is not a JSON Web Key Set") from None
    keys: dict[tuple[str, str], Any] = {}
    for listed_key in listed[:KEYS_MAX] if isinstance(listed, list) else ():
        for algorithm in algorithms:
            if _fits(listed_key, algorithm):
                # A key that cannot be read does not affect the others.
                try:
                    public = {name: listed_key[name] for name in _PUBLIC & listed_key.keys()}
                    keys[listed_key["kid"], algorithm] = jwt.PyJWK(public, algorithm)
                except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
                    continue
    if not keys:
        raise TokensRefused(f"there is no key with a kid, for signatures by {' or '.join(algorithms)}")
    return keys


def _fits(key: Any, algorithm: str) -> bool:
    kind, curve = ALGORITHMS[algorithm]
    return (
        isinstance(key, dict)
        and isinstance(key.get("kid"), str)
        and key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
    )


def read_message(message: bytes) -> tuple[str | None, str]:
    """The user whom the client wants to act as, if it names one, and its token."""
    header, _, rest = message.decode(errors="replace").partition(_BETWEEN)
    head = _HEADER.fullmatch(header)
    pairs = [_PAIR.fullmatch(pair) for pair in rest.removesuffix(2 * _BETWEEN).split(_BETWEEN)]
    named = {pair["name"]: pair["value"] for pair in pairs if pair is not None}
    auth = _AUTH.fullmatch(named.get("auth", ""))
    if head is None or auth is None or len(named) < len(pairs) or not rest.endswith(2 * _BETWEEN):
        raise refused("a message that cannot be read")
    acting = head["acting"]
    return None if acting is None else unescaped(acting), auth["token"]


def refused(why: str) -> Refused:
    return Refused(SASL_AUTHENTICATION_FAILED, f"{OAUTHBEARER}: {why}")


class UnknownKey(Refused):
    """The token names an unknown key; the provider may have a new one."""


def checked(token: str, keys: Keys, settings: TokenSettings, now_seconds: float) -> Bearer:
    """The bearer of the token; Refused if the token is not valid."""
    jwt = _jwt()
    try:
        header = jwt.get_unverified_header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in settings.algorithms:
            raise refused("the algorithm of the token is not allowed")
        if not isinstance(kid, str) or (kid, algorithm) not in keys:
            raise UnknownKey(SASL_AUTHENTICATION_FAILED, f"{OAUTHBEARER}: the token is signed by a key that is unknown")
        if "crit" in header:
            raise refused("the token requires an extension that is not supported")
        # The claims are checked below, by the broker's clock.
        claims = jwt.decode(token, keys[kid, algorithm], algorithms=[algorithm], options=_SIGNATURE_ALONE)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        raise refused("the token is not signed by the provider, or cannot be read") from None
    return _judged(claims, settings, now_seconds)


def _judged(claims: Mapping[str, Any], settings: TokenSettings, now_seconds: float) -> Bearer:
    audience = claims.get("aud")
    if claims.get("iss") != settings.issuer:
        raise refused("the token has another issuer")
    if settings.audience != audience and not (isinstance(audience, list) and settings.audience in audience):
        raise refused("the token is for another audience")
    until = _seconds(claims.get("exp")) + SKEW_SECONDS
    if now_seconds >= until:
        raise refused("the token has expired")
    if "nbf" in claims and now_seconds < _seconds(claims["nbf"]) - SKEW_SECONDS:
        raise refused("the token is not valid yet")
    user = claims.get(settings.user_claim)
    if not isinstance(user, str) or not 0 < _bytes_of(user) <= NAME_BYTES_MAX:
        raise refused(f"the token's claim {settings.user_claim!r} names no user")
    return Bearer(user, until)


def _bytes_of(name: str) -> int:
    """The length of a name in UTF-8; 0 if it cannot be encoded, such as half of a surrogate pair, which JSON allows."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def _seconds(value: object) -> float:
    """A time in a token, in seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("the token has no expiry time, or a time that is not valid")
    if not 0 <= value <= _SECONDS_MAX:
        raise refused("the token has a time that is not valid")
    return float(value)


_SIGNATURE_ALONE: Final[Any] = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
    # A key that is too short is ignored.
    "enforce_minimum_key_length": True,
}


def _jwt() -> Any:
    try:
        import cryptography  # noqa: F401
        import jwt
    except ImportError:
        raise TokensRefused(
            f"{OAUTHBEARER} needs PyJWT and cryptography, and one is missing: pip install 'semel[oauth]'"
        ) from None
    return jwt
