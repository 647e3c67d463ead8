"""The anchor document, `/.well-known/aiip`: read as a stranger's, and written (AIIP/HTTPS v1, 3.2).

Members that are not known are ignored; one that is known and cannot be what it should refuses the document.
Where something may be asked of callers, what is no plain "no" counts as "yes".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from onym.ai._anchor_urls import https_base, https_origin, refuse, within
from onym.ai.records import AnchorDocument, Auth, Effects, EndpointEntry, Level, Requirements
from onym.errors import DiscoveryError, SignatureError, URIError
from onym.sign._strict import read_object
from onym.uri.ai import AIURI

__all__ = [
    "MAX_ENDPOINTS",
    "MAX_OCTETS",
    "WELL_KNOWN",
    "anchor_of",
    "authority_of",
    "claimed_authority",
    "members_of",
    "read_anchor",
    "signed_in",
    "write_anchor",
]

T = TypeVar("T")

#: where the document is, under the anchor; never anywhere else
WELL_KNOWN: Final = "/.well-known/aiip"
#: octets of a document, rows of `endpoints`, members of its other lists
MAX_OCTETS: Final = 64 * 1024
MAX_ENDPOINTS: Final = 512
_MOST: Final = 128
_LONGEST_TEXT: Final = 512
_VERSION: Final = "1"
#: seconds; what is beyond it means no more
_LONGEST_PIN: Final = 10**9
#: RFC 6749 3.3
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}\Z")
_NO_ROWS: Final[tuple[EndpointEntry, ...]] = ()
_ALGORITHMS: Final = ("Ed25519", "ES256", "PS256", "ES384")
_USUAL_ALGORITHMS: Final = ("Ed25519", "ES256")
_SIGNED: Final = "signed_metadata"
#: what JSON can write and no text can hold
_HALVES: Final = re.compile("[\ud800-\udfff]")


def anchor_of(authority: str) -> str | None:
    """The anchor of a DNS authority (`bank.example:8443`); None for a registry name and for none at all."""
    return f"https://{authority}" if "." in authority.partition(":")[0] else None


def authority_of(uri: str) -> str:
    """The authority of a canonical ai URI, "_" where it has none."""
    return AIURI.parse(uri).authority or "_"


def claimed_authority(octets: bytes) -> str | None:
    """The authority that a document's endpoints are of, where it can be read: a claim, and no more."""
    try:
        document = _Members(_read(octets))
        if "endpoint" in document:
            return authority_of(document.need("endpoint", _ai_uri))
        rows = document.get("endpoints", _rows, _NO_ROWS)
    except DiscoveryError:
        return None
    return authority_of(rows[0].uri) if rows else None


def read_anchor(
    octets: bytes, *, anchor: str, authority: str, attested: Mapping[str, Any] | None = None
) -> AnchorDocument:
    """The document that `anchor` (an https origin) serves for `authority`, checked.

    `attested` are the members of its `signed_metadata`, where that was verified: they win, one by one, over
    those beside it. Without them `signed_metadata` is not looked at. Raises DiscoveryError:
    aiip.discovery-conflict where it cannot be used or speaks for somebody else; the message names the member.
    """
    members = _read(octets)
    if attested is not None:
        _check_attested(members, attested)
        members = {**members, **attested}
    document = _document(_Members(members), anchor, authority)
    _check_whose(document)
    return document


def _check_attested(members: Mapping[str, Any], attested: Mapping[str, Any]) -> None:
    """What is signed may say anything but where its own key comes from."""
    if _SIGNED in attested:
        refuse(_SIGNED, "it holds another one of itself")
    if attested.get("jwks", members.get("jwks")) != members.get("jwks"):
        refuse(_SIGNED, "it names another key set than the one that it is verified with")


def _document(found: _Members, anchor: str, authority: str) -> AnchorDocument:
    service = found.get("service", https_base, f"{anchor}{WELL_KNOWN}/v1")
    return AnchorDocument(
        anchor=anchor,
        authority=authority,
        service=service,
        jwks=found.need("jwks", _location),
        endpoint=found.get("endpoint", _ai_uri, None),
        endpoints=found.get("endpoints", _rows, _NO_ROWS),
        scopes=found.get("scopes", _scopes, ()),
        requirements=_requirements(found),
        authorization_servers=found.get("authorization_servers", _urls, ()),
        resource=found.get("resource", _resource, None),
        algorithms=found.get("receipt_alg_values_supported", _algorithms, _USUAL_ALGORITHMS),
        origins=found.get("origins", _origins, ()),
        versions=found.get("versions", _versions, (_VERSION,)),
        pin_max_age=found.get("pin_max_age", _age, 0),
    )


def _check_whose(document: AnchorDocument) -> None:
    """It speaks for this authority alone, with keys of its own origin."""
    if https_origin(document.jwks) != document.anchor:
        refuse("jwks", f"keys come from the anchor's own origin, {document.anchor}")
    for member, uri in [
        ("endpoint", document.endpoint),
        *(("endpoints", row.uri) for row in document.endpoints),
    ]:
        if uri is not None and authority_of(uri) != document.authority:
            refuse(member, f"it claims {authority_of(uri)}, and may speak for {document.authority} alone")
    if document.resource is not None and not within(document.service, document.resource):
        refuse("resource", "it is neither `service` nor a prefix of it")


def signed_in(octets: bytes) -> str | None:
    """The `signed_metadata` of a document, a JWT; None where it has none. Raises as `read_anchor`."""
    return _Members(_read(octets)).get(_SIGNED, _token, None)


def write_anchor(document: AnchorDocument, signed_metadata: str | None = None) -> bytes:
    """The document as JSON, without members that say what their absence says. `read_anchor` reads it back."""
    members = members_of(document)
    if signed_metadata is not None:
        members[_SIGNED] = signed_metadata
    return json.dumps(members, ensure_ascii=False, indent=2).encode("utf-8") + b"\n"


def members_of(document: AnchorDocument) -> dict[str, Any]:
    """The members of a document as JSON has them, without `signed_metadata`: what there is to sign."""
    asked = document.requirements
    policy: dict[str, Any] = {
        "auth": str(asked.auth),
        "mtls": asked.mtls,
        "requireSignedResults": asked.signed_results,
    }
    if asked.dpop is not Level.NONE:
        policy["dpop"] = str(asked.dpop)
    members = {
        "endpoint": document.endpoint,
        "endpoints": [_row(each) for each in document.endpoints],
        "jwks": document.jwks,
        "scopes": list(document.scopes),
        "policy": policy,
        "service": document.service,
        "authorization_servers": list(document.authorization_servers),
        "resource": document.resource,
        "receipt_alg_values_supported": list(document.algorithms),
        "origins": list(document.origins),
        "versions": list(document.versions),
        "pin_max_age": document.pin_max_age,
    }
    return {name: value for name, value in members.items() if value not in (None, [])}


def _row(entry: EndpointEntry) -> dict[str, Any]:
    members = {
        "uri": entry.uri,
        "title": entry.title,
        "effects": str(entry.effects),
        "scopes": list(entry.scopes),
        "idempotency": entry.idempotency,
        "async": entry.asynchronous,
        "approval": entry.approval,
    }
    return {name: value for name, value in members.items() if value is not None}


class _Members:
    """The members of one object; errors name the path to the one that is wrong."""

    __slots__ = ("_found", "_prefix")

    def __init__(self, found: dict[str, Any], prefix: str = "") -> None:
        self._found = found
        self._prefix = prefix

    def get(self, name: str, read: Callable[[Any, str], T], default: T) -> T:
        """The member, or `default` where it is not there. null is not "not there"."""
        return read(self._found[name], self._prefix + name) if name in self._found else default

    def need(self, name: str, read: Callable[[Any, str], T]) -> T:
        """The member, which must be there."""
        if name not in self._found:
            refuse(self._prefix + name, "it is missing")
        return read(self._found[name], self._prefix + name)

    def __contains__(self, name: str) -> bool:
        return name in self._found


def _read(octets: bytes) -> dict[str, Any]:
    if len(octets) > MAX_OCTETS:
        refuse(None, f"it is longer than {MAX_OCTETS} octets")
    try:
        return read_object(octets, "anchor document")
    except SignatureError as error:
        refuse(None, "it is not a JSON object in UTF-8 with each member once", error.hint)


def _requirements(found: _Members) -> Requirements:
    """`policy`. What is there and is no plain "no" counts as "yes"; an unknown way to sign in is refused."""
    policy = found.get("policy", _object, _Members({}))
    return Requirements(
        signed_results=policy.get("requireSignedResults", lambda value, _: value is not False, True),
        mtls=policy.get("mtls", lambda value, _: value is not False, False),
        dpop=policy.get("dpop", _level, Level.NONE),
        auth=policy.get("auth", _auth, Auth.NONE),
    )


def _level(value: Any, _: str) -> Level:
    return Level.SUPPORTED if value == "supported" else Level.REQUIRED


def _auth(value: Any, member: str) -> Auth:
    if not isinstance(value, str) or value not in set(Auth):
        refuse(member, f"not one of {', '.join(Auth)}")
    return Auth(value)


def _rows(value: Any, member: str) -> tuple[EndpointEntry, ...]:
    rows = tuple(
        _entry(_object(each, f"{member}[{at}]"), f"{member}[{at}]")
        for at, each in enumerate(_list(value, member, MAX_ENDPOINTS))
    )
    if len({row.uri for row in rows}) < len(rows):
        refuse(member, "it lists a URI twice")
    return rows


def _entry(found: _Members, member: str) -> EndpointEntry:
    """One row. Effects that are not said, or not known, are the gravest there are."""
    return EndpointEntry(
        uri=found.need("uri", _ai_uri),
        title=found.get("title", _text, None),
        effects=found.get("effects", _effects, Effects.PHYSICAL),
        scopes=found.get("scopes", _scopes, ()),
        idempotency=found.get("idempotency", lambda value, _: value is not False, False),
        asynchronous=found.get("async", lambda value, _: value is True, False),
        approval=found.get("approval", lambda value, _: value is not False, False),
    )


def _effects(value: Any, _: str) -> Effects:
    return Effects(value) if isinstance(value, str) and value in set(Effects) else Effects.PHYSICAL


def _ai_uri(value: Any, member: str) -> str:
    """The canonical form of a resource's URI: without query and fragment."""
    try:
        uri = AIURI.parse(_text(value, member))
        text = uri.canonical()
    except URIError as error:
        refuse(member, f"no ai URI: {error.message}", error.hint)
    if uri.query is not None or uri.fragment is not None:
        refuse(member, "a resource has neither query nor fragment")
    return text


def _location(value: Any, member: str) -> str:
    """The URL of one thing: a slash at its end is part of it."""
    base = https_base(value, member)
    return f"{base}/" if str(value).endswith("/") else base


def _resource(value: Any, member: str) -> str:
    """As it is written: RFC 9728 compares it character by character."""
    https_base(value, member)
    return str(value)


def _urls(value: Any, member: str) -> tuple[str, ...]:
    rows = _list(value, member)
    for each in rows:
        https_base(each, member)
    return tuple(rows)


def _origins(value: Any, member: str) -> tuple[str, ...]:
    found = []
    for each in _list(value, member):
        base = https_base(each, member)
        if base != https_origin(base):
            refuse(member, "an origin has no path")
        found.append(base)
    return tuple(dict.fromkeys(found))


def _algorithms(value: Any, member: str) -> tuple[str, ...]:
    found = [each for each in _list(value, member) if isinstance(each, str) and each in _ALGORITHMS]
    if not found:
        refuse(member, f"none of {', '.join(_ALGORITHMS)} is in it")
    return tuple(dict.fromkeys(found))


def _versions(value: Any, member: str) -> tuple[str, ...]:
    found = tuple(_text(each, member) for each in _list(value, member))
    if _VERSION not in found:
        refuse(member, f"version {_VERSION} is not among them, and no other is spoken here")
    return found


def _scopes(value: Any, member: str) -> tuple[str, ...]:
    found = _list(value, member)
    if not all(isinstance(each, str) and _SCOPE.match(each) for each in found):
        refuse(member, "a scope is printable ASCII without spaces, quotes and backslashes (RFC 6749 3.3)")
    return tuple(dict.fromkeys(found))


def _age(value: Any, member: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        refuse(member, "not a number of seconds")
    return min(value, _LONGEST_PIN)


def _object(value: Any, member: str) -> _Members:
    if not isinstance(value, dict):
        refuse(member, "not an object")
    return _Members(value, f"{member}.")


def _list(value: Any, member: str, most: int = _MOST) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        refuse(member, f"not a list of at most {most}")
    return value


def _token(value: Any, member: str) -> str:
    if not isinstance(value, str) or not value.isascii():
        refuse(member, "not a JWT in its compact form")
    return value


def _text(value: Any, member: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_TEXT:
        refuse(member, f"not a text of at most {_LONGEST_TEXT} characters")
    if _HALVES.search(value):
        refuse(member, "it holds half a character (RFC 8259 8.2)")
    return value
