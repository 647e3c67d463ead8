"""The discovery document, `/.well-known/aiip`: parse and encode (AIIP/HTTPS v1, 3.2).

Pure functions. The parser treats its input as untrusted. It ignores unknown members and rejects the
document if a known member is invalid. For a requirement on callers, every value except a clear "no" means
"yes".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from onym.ai import records
from onym.common.text import parse_json_object
from onym.errors import DiscoveryError, URIError
from onym.net.hosts import parse_host
from onym.net.oauth import SCOPE_CHARACTER
from onym.sign.approval import MAX_APPROVERS
from onym.sign.keys import RECEIPT_ALGORITHMS, USUAL_ALGORITHMS
from onym.uri.ai import AIURI
from onym.uri.generic import URI

CLAUSE: Final = "AIIP/HTTPS v1 3.2"
_LONGEST: Final = 2_048
_ORIGIN: Final = re.compile("https://[^/]+")
#: a path with one meaning: no empty or dot segments, nothing percent-encoded
_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:[/;]|\Z))[A-Za-z0-9._~!$&'()*+,;=:@-]+)*/?\Z")


def raise_document_error(member: str | None, why: str, hint: str | None = None) -> NoReturn:
    """Raise the error for a member of the document, or for the whole document with None."""
    where = "the discovery document" if member is None else f"`{member}` of the discovery document"
    raise DiscoveryError(f"{where} {why}", code="aiip.discovery-conflict", clause=CLAUSE, hint=hint)


def normalize_https_url(value: Any, member: str | None) -> str:
    """Return the https URL in lower case, without `:443` and final slash. Raises DiscoveryError."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise_document_error(member, f"is not a string of at most {_LONGEST} characters")
    try:
        uri = URI.parse(value, "URI")
    except URIError as error:
        raise_document_error(member, f"is not an https URL: {error.message}")
    if (uri.scheme or "").lower() != "https":
        raise_document_error(member, "is not an https URL", "Onym fetches nothing over plain HTTP.")
    if uri.userinfo is not None or uri.query is not None or uri.fragment is not None:
        raise_document_error(member, "has userinfo, a query or a fragment, which is not allowed")
    if not _PATH.match(uri.path):
        raise_document_error(member, "has a path with empty, dot or percent-encoded segments")
    return _format_origin(uri, member) + uri.path.removesuffix("/")


def get_https_origin(base: str) -> str:
    """Return the origin of a URL that `normalize_https_url` returned."""
    match = _ORIGIN.match(base)
    return base if match is None else match[0]


def is_within_prefix(base: str, prefix: str) -> bool:
    """Report whether `base` is `prefix` or below it, by whole segments."""
    plain = normalize_https_url(prefix, None)
    return base == plain or base.startswith(f"{plain}/")


def _format_origin(uri: URI, member: str | None) -> str:
    host = parse_host(uri.host or "")
    if not host.text or host.reason is not None:
        raise_document_error(member, "has a host that is not a DNS name or an address")
    name = f"[{host.text}]" if ":" in host.text else host.text
    port = uri.port or "443"
    if port.startswith("0") or int(port) > 65_535:
        raise_document_error(member, "has a port that is not 1 to 65535 without leading zeros")
    return f"https://{name}" if port == "443" else f"https://{name}:{port}"


T = TypeVar("T")

#: the document's path at the anchor
WELL_KNOWN: Final = "/.well-known/aiip"
#: bytes of a document, entries of `endpoints`, items of its other lists
MAX_OCTETS: Final = 64 * 1024
MAX_ENDPOINTS: Final = 512
_MOST: Final = 128
_LONGEST_TEXT: Final = 512
_VERSION: Final = "1"
#: seconds; larger values mean the same
_LONGEST_PIN: Final = 10**9
_SCOPE: Final = re.compile(SCOPE_CHARACTER + r"{1,256}\Z")
_NO_ENTRIES: Final[tuple[records.EndpointEntry, ...]] = ()
_SIGNED: Final = "signed_metadata"
#: JSON can escape lone surrogates, which no text can contain
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def derive_anchor(authority: str) -> str | None:
    """Return the anchor of a DNS authority (`bank.example:8443`), or None for any other authority."""
    return f"https://{authority}" if "." in authority.partition(":")[0] else None


def get_authority(uri: str) -> str:
    """Return the authority of a canonical ai URI, or NO_AUTHORITY."""
    return AIURI.parse(uri).authority or records.NO_AUTHORITY


def try_canonicalize(text: str) -> str | None:
    """Return the canonical form of an ai URI, or None if the text is not one."""
    try:
        return AIURI.parse(text).canonical()
    except URIError:
        return None


def find_claimed_authority(octets: bytes) -> str | None:
    """Return the authority that a document claims to be for, or None if it cannot be parsed."""
    try:
        document = _JSONObject(_parse_json(octets))
        uri = document.get("endpoint", _parse_ai_uri, None)
        rows = document.get("endpoints", _parse_entries, _NO_ENTRIES) if uri is None else ()
    except DiscoveryError:
        return None
    return get_authority(uri or rows[0].uri) if uri or rows else None


def parse_discovery_document(
    octets: bytes, *, anchor: str, authority: str, attested: Mapping[str, Any] | None = None
) -> records.AnchorDocument:
    """Parse and validate the document that `anchor` (an https origin) serves for `authority`.

    `attested` are the members of its verified `signed_metadata`, which replace the unsigned members; without
    them `signed_metadata` is ignored. Raises DiscoveryError aiip.discovery-conflict if the document is
    invalid or for another authority; the message names the member.
    """
    signed, unsigned = attested or {}, _parse_json(octets)
    if _SIGNED in signed:
        raise_document_error(_SIGNED, "contains another signed_metadata")
    if signed.get("jwks", unsigned.get("jwks")) != unsigned.get("jwks"):
        raise_document_error(_SIGNED, "names another key set than the document")
    found = _JSONObject({**unsigned, **signed})
    document = records.AnchorDocument(
        anchor=anchor,
        authority=authority,
        service=found.get("service", normalize_https_url, f"{anchor}{WELL_KNOWN}/v1"),
        jwks=found.require("jwks", _parse_location),
        endpoint=found.get("endpoint", _parse_ai_uri, None),
        endpoints=found.get("endpoints", _parse_entries, _NO_ENTRIES),
        scopes=found.get("scopes", _parse_scopes, ()),
        requirements=_parse_requirements(found),
        authorization_servers=found.get("authorization_servers", _parse_urls, ()),
        resource=found.get("resource", _parse_resource_url, None),
        algorithms=found.get("receipt_alg_values_supported", _parse_algorithms, USUAL_ALGORITHMS),
        origins=found.get("origins", _parse_origins, ()),
        versions=found.get("versions", _parse_versions, (_VERSION,)),
        pin_max_age=found.get("pin_max_age", _parse_pin_max_age, 0),
        approvers=found.get("approvers", _parse_approvers, ()),
    )
    _validate_ownership(document)
    return document


def _validate_ownership(document: records.AnchorDocument) -> None:
    """Raise DiscoveryError unless the document is only for this authority, with keys of its own origin."""
    if get_https_origin(document.jwks) != document.anchor:
        raise_document_error("jwks", f"is not at the anchor's origin {document.anchor}")
    for member, uri in [
        ("endpoint", document.endpoint),
        *(("endpoints", row.uri) for row in document.endpoints),
    ]:
        authority = document.authority if uri is None else get_authority(uri)
        if authority != document.authority:
            why = f"names a resource of {authority}, but the document is for {document.authority}"
            raise_document_error(member, why)
    if document.resource is not None and not is_within_prefix(document.service, document.resource):
        raise_document_error("resource", "is neither `service` nor a prefix of it")


def find_signed_metadata(octets: bytes) -> str | None:
    """Return the `signed_metadata` of a document, a JWT, or None.

    Raises as `parse_discovery_document` does.
    """
    return _JSONObject(_parse_json(octets)).get(_SIGNED, _parse_token, None)


def encode_discovery_document(document: records.AnchorDocument, signed_metadata: str | None = None) -> bytes:
    """Encode the document as JSON, without members that have their default value."""
    members = document_to_members(document)
    if signed_metadata is not None:
        members[_SIGNED] = signed_metadata
    return json.dumps(members, ensure_ascii=False, indent=2).encode("utf-8") + b"\n"


def document_to_members(document: records.AnchorDocument) -> dict[str, Any]:
    """Return the document's members without `signed_metadata`: the members that can be signed."""
    requirements = document.requirements
    policy: dict[str, Any] = {
        "auth": str(requirements.auth),
        "mtls": requirements.mtls,
        "requireSignedResults": requirements.signed_results,
    }
    if requirements.dpop is not records.Level.NONE:
        policy["dpop"] = str(requirements.dpop)
    if requirements.request_binding:
        policy["requestBinding"] = str(records.Level.REQUIRED)
    members = {
        "endpoint": document.endpoint,
        "endpoints": [_entry_to_members(entry) for entry in document.endpoints],
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
        "approvers": [_approver_to_members(approver) for approver in document.approvers],
    }
    return {name: value for name, value in members.items() if value not in (None, [])}


def _approver_to_members(approver: records.Approver) -> dict[str, Any]:
    members = {
        "issuer": approver.issuer,
        "jwks": approver.jwks,
        "acr": list(approver.acr),
        "pairwise": approver.pairwise,
    }
    return {name: value for name, value in members.items() if value != []}


def _entry_to_members(entry: records.EndpointEntry) -> dict[str, Any]:
    members = {
        "uri": entry.uri,
        "title": entry.title,
        "effects": str(entry.effects),
        "scopes": list(entry.scopes),
        "idempotency": entry.idempotency,
        "async": entry.asynchronous,
        "approval": entry.approval,
        "reversible": entry.reversible or None,
    }
    return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _JSONObject:
    """The members of one object; errors name the path to the invalid member."""

    members: Mapping[str, Any]
    prefix: str = ""

    def get(self, name: str, read: Callable[[Any, str], T], default: T) -> T:
        """Return the parsed member, or `default` if it is missing; null is not missing."""
        return read(self.members[name], self.prefix + name) if name in self.members else default

    def require(self, name: str, read: Callable[[Any, str], T]) -> T:
        """Return the parsed member. Raises DiscoveryError if it is missing."""
        if name not in self.members:
            raise_document_error(self.prefix + name, "is missing")
        return read(self.members[name], self.prefix + name)


def _parse_json(octets: bytes) -> dict[str, Any]:
    if len(octets) > MAX_OCTETS:
        raise_document_error(None, f"is longer than {MAX_OCTETS} bytes")
    try:
        return parse_json_object(octets)
    except ValueError as error:
        raise_document_error(None, str(error))


def _parse_requirements(found: _JSONObject) -> records.Requirements:
    """Parse `policy`: every value except a plain "no" means "yes"; an unknown `auth` is an error."""
    policy = found.get("policy", _parse_object, _JSONObject({}))
    return records.Requirements(
        signed_results=policy.get("requireSignedResults", lambda value, _: value is not False, True),
        mtls=policy.get("mtls", lambda value, _: value is not False, False),
        dpop=policy.get(
            "dpop",
            lambda value, _: records.Level.SUPPORTED if value == "supported" else records.Level.REQUIRED,
            records.Level.NONE,
        ),
        auth=policy.get("auth", _parse_auth, records.Auth.NONE),
        request_binding=policy.get(
            "requestBinding", lambda value, _: value is not False and value != "none", False
        ),
    )


def _parse_auth(value: Any, member: str) -> records.Auth:
    if not isinstance(value, str) or value not in set(records.Auth):
        raise_document_error(member, f"is not one of {', '.join(records.Auth)}")
    return records.Auth(value)


def _parse_approvers(value: Any, member: str) -> tuple[records.Approver, ...]:
    rows = tuple(
        _parse_approver(_parse_object(row, f"{member}[{at}]"))
        for at, row in enumerate(_parse_list(value, member, MAX_APPROVERS))
    )
    if len({row.issuer for row in rows}) < len(rows):
        raise_document_error(member, "lists an issuer twice")
    return rows


def _parse_approver(found: _JSONObject) -> records.Approver:
    """Parse one approver. Every `pairwise` except a plain "no" means pseudonyms."""
    return records.Approver(
        issuer=found.require("issuer", normalize_https_url),
        jwks=found.require("jwks", _parse_location),
        acr=found.get("acr", _parse_texts, ()),
        pairwise=found.get("pairwise", lambda value, _: value is not False, True),
    )


def _parse_texts(value: Any, member: str) -> tuple[str, ...]:
    return tuple(_parse_text(item, member) for item in _parse_list(value, member))


def _parse_entries(value: Any, member: str) -> tuple[records.EndpointEntry, ...]:
    rows = tuple(
        _parse_entry(_parse_object(row, f"{member}[{at}]"))
        for at, row in enumerate(_parse_list(value, member, MAX_ENDPOINTS))
    )
    if len({row.uri for row in rows}) < len(rows):
        raise_document_error(member, "lists a URI twice")
    return rows


def _parse_entry(found: _JSONObject) -> records.EndpointEntry:
    """Parse one entry. Missing or unknown effects count as physical effects."""
    effects = found.get("effects", lambda value, _: value, None)
    return records.EndpointEntry(
        uri=found.require("uri", _parse_ai_uri),
        title=found.get("title", _parse_text, None),
        effects=records.Effects(effects) if effects in list(records.Effects) else records.Effects.PHYSICAL,
        scopes=found.get("scopes", _parse_scopes, ()),
        idempotency=found.get("idempotency", lambda value, _: value is not False, False),
        asynchronous=found.get("async", lambda value, _: value is True, False),
        approval=found.get("approval", lambda value, _: value is not False, False),
        reversible=found.get("reversible", lambda value, _: value is True, False),
    )


def _parse_ai_uri(value: Any, member: str) -> str:
    """Return the canonical URI of a resource, which has neither query nor fragment."""
    try:
        uri = AIURI.parse(_parse_text(value, member))
        text = uri.canonical()
    except URIError as error:
        raise_document_error(member, f"is not an ai URI: {error.message}", error.hint)
    if uri.query is not None or uri.fragment is not None:
        raise_document_error(member, "has a query or a fragment, which resources do not have")
    return text


def _parse_location(value: Any, member: str) -> str:
    """Return the URL of one document; a slash at its end is part of it."""
    base = normalize_https_url(value, member)
    return f"{base}/" if str(value).endswith("/") else base


def _parse_resource_url(value: Any, member: str) -> str:
    """Return the URL as written, because RFC 9728 compares it character by character."""
    normalize_https_url(value, member)
    return str(value)


def _parse_urls(value: Any, member: str) -> tuple[str, ...]:
    return tuple(_parse_resource_url(url, member) for url in _parse_list(value, member))


def _parse_origins(value: Any, member: str) -> tuple[str, ...]:
    origins = [normalize_https_url(url, member) for url in _parse_list(value, member)]
    if any(origin != get_https_origin(origin) for origin in origins):
        raise_document_error(member, "contains an origin with a path")
    return tuple(dict.fromkeys(origins))


def _parse_algorithms(value: Any, member: str) -> tuple[str, ...]:
    known = [name for name in _parse_list(value, member) if name in RECEIPT_ALGORITHMS]
    if not known:
        raise_document_error(member, f"contains none of {', '.join(RECEIPT_ALGORITHMS)}")
    return tuple(dict.fromkeys(known))


def _parse_versions(value: Any, member: str) -> tuple[str, ...]:
    found = tuple(_parse_text(version, member) for version in _parse_list(value, member))
    if _VERSION not in found:
        raise_document_error(member, f"does not contain {_VERSION}, the only version that Onym supports")
    return found


def _parse_scopes(value: Any, member: str) -> tuple[str, ...]:
    found = _parse_list(value, member)
    if not all(isinstance(scope, str) and _SCOPE.match(scope) for scope in found):
        raise_document_error(member, "contains a scope with characters that RFC 6749 3.3 does not allow")
    return tuple(dict.fromkeys(found))


def _parse_pin_max_age(value: Any, member: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise_document_error(member, "is not a number of seconds")
    return min(value, _LONGEST_PIN)


def _parse_object(value: Any, member: str) -> _JSONObject:
    if not isinstance(value, dict):
        raise_document_error(member, "is not an object")
    return _JSONObject(value, f"{member}.")


def _parse_list(value: Any, member: str, most: int = _MOST) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise_document_error(member, f"is not a list of at most {most} items")
    return value


def _parse_token(value: Any, member: str) -> str:
    if not isinstance(value, str) or not value.isascii():
        raise_document_error(member, "is not a JWT in its compact form")
    return value


def _parse_text(value: Any, member: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_TEXT:
        raise_document_error(member, f"is not a string of 1 to {_LONGEST_TEXT} characters")
    if _SURROGATES.search(value):
        raise_document_error(member, "contains a lone surrogate (RFC 8259 8.2)")
    return value
