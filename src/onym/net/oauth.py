"""OAuth 2 on the wire: what clients send to authorization servers, and the tokens that they read (RFC 6749).

Pure functions, used by sign-in with OpenID Connect and by the clients of `ai://` resources.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import urlencode

from onym.common.text import encode_base64url, parse_json_object
from onym.net.messages import Reply
from onym.uri.secret import Secret

#: how a client authenticates with a signed assertion (RFC 7523 2.2)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: bytes of one token
MAX_TOKEN: Final = 16 * 1024
#: the characters of a scope (RFC 6749 3.3)
SCOPE_CHARACTER: Final = r"[\x21\x23-\x5b\x5d-\x7e]"
#: scopes of one token
MAX_SCOPES: Final = 128
#: one scope; with a limit of its own
SCOPE: Final = re.compile(SCOPE_CHARACTER + r"{1,255}\Z")
_TOKEN_TEXT: Final = re.compile(r"[\x21-\x7e]+\Z")
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,64}\Z")


def encode_form(form: Mapping[str, str | Secret]) -> bytes:
    """Return the body of a form. It contains the secrets."""
    return urlencode(
        [(name, value.reveal() if isinstance(value, Secret) else value) for name, value in form.items()]
    ).encode("ascii")


def encode_basic_auth(client_id: str, secret: Secret) -> Secret:
    """Return the `Authorization` of a client: both are form-encoded before they are joined (2.3.1)."""
    pair = f"{_quote_form_value(client_id)}:{_quote_form_value(secret.reveal())}"
    return Secret("Basic " + b64encode(pair.encode("ascii")).decode("ascii"))


def _quote_form_value(text: str) -> str:
    return urlencode({"": text})[1:]


def append_query(endpoint: str, query: Mapping[str, str | Secret]) -> str:
    """Return the endpoint's URL, which may have a query, with these parameters. It contains the secrets."""
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{encode_form(query).decode('ascii')}"


def make_code_challenge(verifier: str) -> str:
    """Return the S256 challenge of a code verifier (PKCE, RFC 7636 4.2)."""
    return encode_base64url(sha256(verifier.encode("ascii")).digest())


def parse_error_code(code: object) -> str | None:
    """Return the code of an error response (5.2), None for a value that does not look like one."""
    return code if isinstance(code, str) and _ERROR_CODE.match(code) else None


class IssuedToken(NamedTuple):
    """The members of a token response that Onym uses (RFC 6749 5.1), with its secrets as `Secret`."""

    token: Secret
    kind: str
    issued_type: str | None
    scopes: frozenset[str] | None
    seconds: float | None
    refresh_token: Secret | None
    id_token: Secret | None


def read_token(reply: Reply) -> IssuedToken | str:
    """Return the token of a response, or its fault: an error raised here would show the token."""
    try:
        members = parse_json_object(reply.body)
    except ValueError as error:
        return f"sent a token response that {error}"
    texts: dict[str, Secret | None] = {}
    for name in ("access_token", "refresh_token", "id_token"):
        value = members.get(name)
        if value is not None and not (
            isinstance(value, str) and 0 < len(value) <= MAX_TOKEN and _TOKEN_TEXT.match(value)
        ):
            return f"sent a token response with an invalid {name}"
        texts[name] = None if value is None else Secret(value)
    kind, scope, token = members.get("token_type"), members.get("scope"), texts["access_token"]
    if token is None or not isinstance(kind, str):
        return "sent a token response without access_token or token_type"
    scopes = None if scope is None else parse_scope(scope)
    if scope is not None and scopes is None:
        return "sent a token response with an invalid scope"
    seconds = parse_seconds(members.get("expires_in"))
    if "expires_in" in members and seconds is None:
        return "sent a token response with an invalid expires_in"
    issued_type = members.get("issued_token_type")
    return IssuedToken(
        token=token,
        kind=kind,
        issued_type=issued_type if isinstance(issued_type, str) else None,
        scopes=scopes,
        seconds=seconds,
        refresh_token=texts["refresh_token"],
        id_token=texts["id_token"],
    )


def parse_scope(scope: object) -> frozenset[str] | None:
    """Return the scopes of a text, separated by single spaces (3.3); None if it is not such a text."""
    scopes = scope.split(" ") if isinstance(scope, str) and scope else []
    is_valid = isinstance(scope, str) and len(scopes) <= MAX_SCOPES and all(map(SCOPE.match, scopes))
    return frozenset(scopes) if is_valid else None


def parse_seconds(value: object) -> float | None:
    """Return a number of seconds greater than 0, which some servers write as a string, else None."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e10 else None
