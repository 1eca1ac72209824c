"""The options of `semel serve` for tokens (OAUTHBEARER): the keys that sign them, and what they must contain."""

import argparse
from typing import TYPE_CHECKING

from semel.ui.cli.errors import Failure

if TYPE_CHECKING:
    from semel.log.brokers import TokenSettings


def add_tokens(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--token-keys",
        metavar="FILE|URL",
        help="let clients log in by tokens (OAUTHBEARER) that are signed by a key of this JSON Web Key Set: a file, or "
        "an https URL of the identity provider",
    )
    add("--token-issuer", metavar="TEXT", help="the issuer (iss) that a token must have")
    add("--token-audience", metavar="TEXT", help="the audience (aud) that a token must have")
    add(
        "--token-algorithm",
        action="append",
        default=[],
        metavar="NAME",
        help="an algorithm with which tokens may be signed, any number of times (RS256, ES256)",
    )
    add("--token-user-claim", metavar="NAME", help="the claim of a token that names the user (sub)")


def tokens_of(options: argparse.Namespace) -> "TokenSettings | None":
    """The settings of tokens; None if no keys are named."""
    from semel.log.brokers import ALGORITHMS_DEFAULT, TokenSettings

    if options.token_keys is None:
        for name in ("token_issuer", "token_audience", "token_algorithm", "token_user_claim"):
            if getattr(options, name):
                raise Failure(f"--{name.replace('_', '-')} is given without --token-keys")
        return None
    if not (options.token_issuer and options.token_audience):
        raise Failure(
            "--token-keys needs --token-issuer and --token-audience: without them the broker would accept tokens for "
            "other services"
        )
    return TokenSettings(
        options.token_keys,
        options.token_issuer,
        options.token_audience,
        tuple(options.token_algorithm) or ALGORITHMS_DEFAULT,
        options.token_user_claim or "sub",
    )
