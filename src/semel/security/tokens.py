"""Tokens of OAUTHBEARER (RFC 7628): a JWT that an identity provider has signed says who the client is, and until when.

A token is good if its key is one of the provider's, its algorithm is one that the operator allows for this key, its
signature is right, and its issuer, its audience and its times are those that are asked for. A token names its key
(`kid`); no key is tried because no other one fits, and none is taken from the token itself. Nothing here may read a
clock, a file or a socket, and no message may contain anything of a token.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from semel.core.refusals import SASL_AUTHENTICATION_FAILED, Refused
from semel.core.users import NAME_BYTES_MAX

OAUTHBEARER: Final = "OAUTHBEARER"
# What may be allowed, with the kind of key, and for elliptic curves the curve. Those of shared secrets (HS256) are not
# here: the key with which a token is checked would be the one with which anybody could make one.
ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
ALGORITHMS_DEFAULT: Final = ("RS256", "ES256")
# As far as two clocks may differ, as in Apache Kafka (sasl.oauthbearer.clock.skew.seconds).
SKEW_SECONDS: Final = 30
# Providers have two or three.
KEYS_MAX: Final = 100
# What a key is needed for. Some sets hold the private part as well, and it is not for checking.
_PUBLIC: Final = frozenset(("kty", "crv", "n", "e", "x", "y"))
# The year 9999: what is beyond it is no time.
_SECONDS_MAX: Final = 253_402_300_800
# The client's one message: whom it wants to act as, then pairs, of which one is the token. Others are what Kafka calls
# extensions, and mean nothing here.
_HEADER: Final = re.compile(r"n,(?:a=(?P<acting>[^,]+))?,")
_PAIR: Final = re.compile(r"(?P<name>[A-Za-z]+)=(?P<value>.*)", re.DOTALL)
_AUTH: Final = re.compile(r"[Bb]earer +(?P<token>[A-Za-z0-9_.=-]+) *")
_BETWEEN: Final = "\x01"


class TokensRefused(ValueError):
    """Tokens cannot be checked with these settings; the message says why."""


@dataclass(frozen=True)
class TokenSettings:
    """What is asked of tokens, and where the keys of their provider are: a file, or an https URL."""

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
    """Whom a token names, and until when it is good, in seconds since 1970."""

    user: str
    until_seconds: float


# By the names of a key and of an algorithm that it may be used with.
Keys = Mapping[tuple[str, str], Any]


def keys_of(content: bytes, algorithms: tuple[str, ...]) -> Keys:
    """The keys of a JSON Web Key Set that can be used; TokensRefused if there are none."""
    jwt = _jwt()
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TokensRefused("this is no JSON Web Key Set") from None
    keys: dict[tuple[str, str], Any] = {}
    for listed_key in listed[:KEYS_MAX] if isinstance(listed, list) else ():
        for algorithm in algorithms:
            if _fits(listed_key, algorithm):
                # One that cannot be read keeps no other from being used.
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
    """Whom the client wants to act as, if it says so, and its token."""
    header, _, rest = message.decode(errors="replace").partition(_BETWEEN)
    head = _HEADER.fullmatch(header)
    pairs = [_PAIR.fullmatch(pair) for pair in rest.removesuffix(2 * _BETWEEN).split(_BETWEEN)]
    named = {pair["name"]: pair["value"] for pair in pairs if pair is not None}
    auth = _AUTH.fullmatch(named.get("auth", ""))
    if head is None or auth is None or len(named) < len(pairs) or not rest.endswith(2 * _BETWEEN):
        raise refused("a message that cannot be read")
    return head["acting"], auth["token"]


def refused(why: str) -> Refused:
    return Refused(SASL_AUTHENTICATION_FAILED, f"{OAUTHBEARER}: {why}")


class UnknownKey(Refused):
    """The token names a key that is not known; the provider may have a new one."""


def checked(token: str, keys: Keys, settings: TokenSettings, now_seconds: float) -> Bearer:
    """Whom the token names; Refused if it is not good."""
    jwt = _jwt()
    try:
        header = jwt.get_unverified_header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in settings.algorithms:
            raise refused("the algorithm of the token is not allowed")
        if not isinstance(kid, str) or (kid, algorithm) not in keys:
            raise UnknownKey(SASL_AUTHENTICATION_FAILED, f"{OAUTHBEARER}: the token is signed by a key that is unknown")
        if "crit" in header:
            raise refused("the token asks for an extension that is not known")
        # What it claims is judged below, by the broker's clock.
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
        raise refused("the token is not good yet")
    user = claims.get(settings.user_claim)
    if not isinstance(user, str) or not 0 < _bytes_of(user) <= NAME_BYTES_MAX:
        raise refused(f"the token's claim {settings.user_claim!r} names no user")
    return Bearer(user, until)


def _bytes_of(name: str) -> int:
    """How long a name is in UTF-8; 0 if UTF-8 cannot say it, as it cannot half of a character, which JSON can."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def _seconds(value: object) -> float:
    """A time that a token claims, in seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("the token has no time at which it expires, or another time that cannot be read")
    if not 0 <= value <= _SECONDS_MAX:
        raise refused("the token has a time that cannot be")
    return float(value)


_SIGNATURE_ALONE: Final[Any] = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
    # A key that is too short is none.
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
