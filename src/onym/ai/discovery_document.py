"""The discovery document, `/.well-known/aiip`: parse and encode (AIIP/HTTPS v1, 3.2).

Pure functions. The parser treats its input as untrusted. It ignores unknown members and rejects the
document if a known member is invalid. If a member demands something of callers, every value that is not a
clear "no" means "yes".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from onym.ai.records import AnchorDocument, Auth, Effects, EndpointEntry, Level, Requirements
from onym.common.strict_json import parse_json_object
from onym.errors import DiscoveryError, URIError
from onym.net.hosts import parse_host
from onym.uri.ai import AIURI
from onym.uri.generic import URI

CLAUSE: Final = "AIIP/HTTPS v1 3.2"
_LONGEST: Final = 2_048
_ORIGIN: Final = re.compile("https://[^/]+")
#: a path that every reader takes for the same: plain segments, nothing encoded that could be syntax
_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:[/;]|\Z))[A-Za-z0-9._~!$&'()*+,;=:@-]+)*/?\Z")


def raise_document_error(member: str | None, why: str, hint: str | None = None) -> NoReturn:
    """Raise the error for a member of the document, None for all of it."""
    where = "the anchor document cannot be used" if member is None else f"anchor document, `{member}`"
    raise DiscoveryError(f"{where}: {why}", code="aiip.discovery-conflict", clause=CLAUSE, hint=hint)


def normalize_https_url(value: Any, member: str | None) -> str:
    """An https URL without user, query, fragment and final slash; scheme and host lower case, no `:443`."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise_document_error(member, f"not a text of at most {_LONGEST} characters")
    try:
        uri = URI.parse(value, "URI")
    except URIError as error:
        raise_document_error(member, f"no https URL: {error.message}")
    if (uri.scheme or "").lower() != "https":
        raise_document_error(member, "the scheme is not https", "nothing is fetched over plain HTTP")
    if uri.userinfo is not None or uri.query is not None or uri.fragment is not None:
        raise_document_error(member, "a URL here has no user, query or fragment")
    if not _PATH.match(uri.path):
        raise_document_error(
            member, "its path is read in two ways", "no empty or dot segments, nothing percent-encoded"
        )
    return _format_origin(uri, member) + uri.path.removesuffix("/")


def get_https_origin(base: str) -> str:
    """The origin of what `normalize_https_url` gave."""
    found = _ORIGIN.match(base)
    return base if found is None else found[0]


def is_within_prefix(base: str, prefix: str) -> bool:
    """Is `base` the same as `prefix` or below it, whole segments counted?"""
    plain = normalize_https_url(prefix, None)
    return base == plain or base.startswith(f"{plain}/")


def _format_origin(uri: URI, member: str | None) -> str:
    host = parse_host(uri.host or "")
    if not host.text or host.reason is not None:
        raise_document_error(member, "its host is no DNS name or address")
    name = f"[{host.text}]" if ":" in host.text else host.text
    port = uri.port or "443"
    if port.startswith("0") or int(port) > 65_535:
        raise_document_error(member, "a port is 1 to 65535, without leading zeros")
    return f"https://{name}" if port == "443" else f"https://{name}:{port}"


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
_NO_ENTRIES: Final[tuple[EndpointEntry, ...]] = ()
_ALGORITHMS: Final = ("Ed25519", "ES256", "PS256", "ES384")
_USUAL_ALGORITHMS: Final = ("Ed25519", "ES256")
_SIGNED: Final = "signed_metadata"
#: what JSON can write and no text can hold
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def derive_anchor(authority: str) -> str | None:
    """The anchor of a DNS authority (`bank.example:8443`); None for a registry name and for none at all."""
    return f"https://{authority}" if "." in authority.partition(":")[0] else None


def get_authority(uri: str) -> str:
    """The authority of a canonical ai URI, "_" where it has none."""
    return AIURI.parse(uri).authority or "_"


def find_claimed_authority(octets: bytes) -> str | None:
    """The authority that a document's endpoints are of, where it can be read: a claim, and no more."""
    try:
        document = _JSONObject(_parse_json(octets))
        if "endpoint" in document:
            return get_authority(document.require("endpoint", _parse_ai_uri))
        rows = document.get("endpoints", _parse_entries, _NO_ENTRIES)
    except DiscoveryError:
        return None
    return get_authority(rows[0].uri) if rows else None


def parse_discovery_document(
    octets: bytes, *, anchor: str, authority: str, attested: Mapping[str, Any] | None = None
) -> AnchorDocument:
    """The document that `anchor` (an https origin) serves for `authority`, checked.

    `attested` are the members of its `signed_metadata`, where that was verified: they win, one by one, over
    those beside it. Without them `signed_metadata` is not looked at. Raises DiscoveryError:
    aiip.discovery-conflict where it cannot be used or speaks for somebody else; the message names the member.
    """
    members = _parse_json(octets)
    if attested is not None:
        _validate_signed_members(members, attested)
        members = {**members, **attested}
    document = _build_document(_JSONObject(members), anchor, authority)
    _validate_ownership(document)
    return document


def _validate_signed_members(members: Mapping[str, Any], attested: Mapping[str, Any]) -> None:
    """What is signed may say anything but where its own key comes from."""
    if _SIGNED in attested:
        raise_document_error(_SIGNED, "it holds another one of itself")
    if attested.get("jwks", members.get("jwks")) != members.get("jwks"):
        raise_document_error(_SIGNED, "it names another key set than the one that it is verified with")


def _build_document(found: _JSONObject, anchor: str, authority: str) -> AnchorDocument:
    service = found.get("service", normalize_https_url, f"{anchor}{WELL_KNOWN}/v1")
    return AnchorDocument(
        anchor=anchor,
        authority=authority,
        service=service,
        jwks=found.require("jwks", _parse_location),
        endpoint=found.get("endpoint", _parse_ai_uri, None),
        endpoints=found.get("endpoints", _parse_entries, _NO_ENTRIES),
        scopes=found.get("scopes", _parse_scopes, ()),
        requirements=_parse_requirements(found),
        authorization_servers=found.get("authorization_servers", _parse_urls, ()),
        resource=found.get("resource", _parse_resource_url, None),
        algorithms=found.get("receipt_alg_values_supported", _parse_algorithms, _USUAL_ALGORITHMS),
        origins=found.get("origins", _parse_origins, ()),
        versions=found.get("versions", _parse_versions, (_VERSION,)),
        pin_max_age=found.get("pin_max_age", _parse_pin_max_age, 0),
    )


def _validate_ownership(document: AnchorDocument) -> None:
    """It speaks for this authority alone, with keys of its own origin."""
    if get_https_origin(document.jwks) != document.anchor:
        raise_document_error("jwks", f"keys come from the anchor's own origin, {document.anchor}")
    for member, uri in [
        ("endpoint", document.endpoint),
        *(("endpoints", row.uri) for row in document.endpoints),
    ]:
        if uri is not None and get_authority(uri) != document.authority:
            raise_document_error(
                member, f"it claims {get_authority(uri)}, and may speak for {document.authority} alone"
            )
    if document.resource is not None and not is_within_prefix(document.service, document.resource):
        raise_document_error("resource", "it is neither `service` nor a prefix of it")


def find_signed_metadata(octets: bytes) -> str | None:
    """The `signed_metadata` of a document, a JWT; None where it has none. Raises as `parse_discovery_document`."""
    return _JSONObject(_parse_json(octets)).get(_SIGNED, _parse_token, None)


def encode_discovery_document(document: AnchorDocument, signed_metadata: str | None = None) -> bytes:
    """The document as JSON, without members that say what their absence says. `parse_discovery_document` reads it back."""
    members = document_to_members(document)
    if signed_metadata is not None:
        members[_SIGNED] = signed_metadata
    return json.dumps(members, ensure_ascii=False, indent=2).encode("utf-8") + b"\n"


def document_to_members(document: AnchorDocument) -> dict[str, Any]:
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
        "endpoints": [_entry_to_members(each) for each in document.endpoints],
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


def _entry_to_members(entry: EndpointEntry) -> dict[str, Any]:
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


class _JSONObject:
    """The members of one object; errors name the path to the one that is wrong."""

    __slots__ = ("_found", "_prefix")

    def __init__(self, found: dict[str, Any], prefix: str = "") -> None:
        self._found = found
        self._prefix = prefix

    def get(self, name: str, read: Callable[[Any, str], T], default: T) -> T:
        """The member, or `default` where it is not there. null is not "not there"."""
        return read(self._found[name], self._prefix + name) if name in self._found else default

    def require(self, name: str, read: Callable[[Any, str], T]) -> T:
        """The member, which must be there."""
        if name not in self._found:
            raise_document_error(self._prefix + name, "it is missing")
        return read(self._found[name], self._prefix + name)

    def __contains__(self, name: str) -> bool:
        return name in self._found


def _parse_json(octets: bytes) -> dict[str, Any]:
    if len(octets) > MAX_OCTETS:
        raise_document_error(None, f"it is longer than {MAX_OCTETS} octets")
    try:
        return parse_json_object(octets)
    except ValueError as error:
        raise_document_error(None, f"it {error}")


def _parse_requirements(found: _JSONObject) -> Requirements:
    """`policy`. What is there and is no plain "no" counts as "yes"; an unknown way to sign in is refused."""
    policy = found.get("policy", _parse_object, _JSONObject({}))
    return Requirements(
        signed_results=policy.get("requireSignedResults", lambda value, _: value is not False, True),
        mtls=policy.get("mtls", lambda value, _: value is not False, False),
        dpop=policy.get("dpop", _parse_level, Level.NONE),
        auth=policy.get("auth", _parse_auth, Auth.NONE),
    )


def _parse_level(value: Any, _: str) -> Level:
    return Level.SUPPORTED if value == "supported" else Level.REQUIRED


def _parse_auth(value: Any, member: str) -> Auth:
    if not isinstance(value, str) or value not in set(Auth):
        raise_document_error(member, f"not one of {', '.join(Auth)}")
    return Auth(value)


def _parse_entries(value: Any, member: str) -> tuple[EndpointEntry, ...]:
    rows = tuple(
        _parse_entry(_parse_object(each, f"{member}[{at}]"), f"{member}[{at}]")
        for at, each in enumerate(_parse_list(value, member, MAX_ENDPOINTS))
    )
    if len({row.uri for row in rows}) < len(rows):
        raise_document_error(member, "it lists a URI twice")
    return rows


def _parse_entry(found: _JSONObject, member: str) -> EndpointEntry:
    """One row. Effects that are not said, or not known, are the gravest there are."""
    return EndpointEntry(
        uri=found.require("uri", _parse_ai_uri),
        title=found.get("title", _parse_text, None),
        effects=found.get("effects", _parse_effects, Effects.PHYSICAL),
        scopes=found.get("scopes", _parse_scopes, ()),
        idempotency=found.get("idempotency", lambda value, _: value is not False, False),
        asynchronous=found.get("async", lambda value, _: value is True, False),
        approval=found.get("approval", lambda value, _: value is not False, False),
    )


def _parse_effects(value: Any, _: str) -> Effects:
    return Effects(value) if isinstance(value, str) and value in set(Effects) else Effects.PHYSICAL


def _parse_ai_uri(value: Any, member: str) -> str:
    """The canonical form of a resource's URI: without query and fragment."""
    try:
        uri = AIURI.parse(_parse_text(value, member))
        text = uri.canonical()
    except URIError as error:
        raise_document_error(member, f"no ai URI: {error.message}", error.hint)
    if uri.query is not None or uri.fragment is not None:
        raise_document_error(member, "a resource has neither query nor fragment")
    return text


def _parse_location(value: Any, member: str) -> str:
    """The URL of one thing: a slash at its end is part of it."""
    base = normalize_https_url(value, member)
    return f"{base}/" if str(value).endswith("/") else base


def _parse_resource_url(value: Any, member: str) -> str:
    """As it is written: RFC 9728 compares it character by character."""
    normalize_https_url(value, member)
    return str(value)


def _parse_urls(value: Any, member: str) -> tuple[str, ...]:
    rows = _parse_list(value, member)
    for each in rows:
        normalize_https_url(each, member)
    return tuple(rows)


def _parse_origins(value: Any, member: str) -> tuple[str, ...]:
    found = []
    for each in _parse_list(value, member):
        base = normalize_https_url(each, member)
        if base != get_https_origin(base):
            raise_document_error(member, "an origin has no path")
        found.append(base)
    return tuple(dict.fromkeys(found))


def _parse_algorithms(value: Any, member: str) -> tuple[str, ...]:
    found = [each for each in _parse_list(value, member) if isinstance(each, str) and each in _ALGORITHMS]
    if not found:
        raise_document_error(member, f"none of {', '.join(_ALGORITHMS)} is in it")
    return tuple(dict.fromkeys(found))


def _parse_versions(value: Any, member: str) -> tuple[str, ...]:
    found = tuple(_parse_text(each, member) for each in _parse_list(value, member))
    if _VERSION not in found:
        raise_document_error(member, f"version {_VERSION} is not among them, and no other is spoken here")
    return found


def _parse_scopes(value: Any, member: str) -> tuple[str, ...]:
    found = _parse_list(value, member)
    if not all(isinstance(each, str) and _SCOPE.match(each) for each in found):
        raise_document_error(
            member, "a scope is printable ASCII without spaces, quotes and backslashes (RFC 6749 3.3)"
        )
    return tuple(dict.fromkeys(found))


def _parse_pin_max_age(value: Any, member: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise_document_error(member, "not a number of seconds")
    return min(value, _LONGEST_PIN)


def _parse_object(value: Any, member: str) -> _JSONObject:
    if not isinstance(value, dict):
        raise_document_error(member, "not an object")
    return _JSONObject(value, f"{member}.")


def _parse_list(value: Any, member: str, most: int = _MOST) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise_document_error(member, f"not a list of at most {most}")
    return value


def _parse_token(value: Any, member: str) -> str:
    if not isinstance(value, str) or not value.isascii():
        raise_document_error(member, "not a JWT in its compact form")
    return value


def _parse_text(value: Any, member: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_TEXT:
        raise_document_error(member, f"not a text of at most {_LONGEST_TEXT} characters")
    if _SURROGATES.search(value):
        raise_document_error(member, "it holds half a character (RFC 8259 8.2)")
    return value
