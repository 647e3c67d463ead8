"""The API as data: one row per operation. Routes and the OpenAPI document are both made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from starlette.routing import Route

from onym.registry.accounts import Scope
from onym.registry.records import EventKind, RequestState, Role, Status
from onym.registry.registries import REGISTRIES
from onym.server.registry.api import models as m
from onym.server.registry.api import reading, writing
from onym.server.registry.files import MEDIA
from onym.server.registry.routing import Handler, resource
from onym.server.registry.urls import API

__all__ = ["OPERATIONS", "PARAMETERS", "Operation", "Parameter", "api_routes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: where it stands, its JSON schema, what it means, and one that works."""

    name: str
    place: str
    schema: Mapping[str, Any]
    summary: str
    example: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `parameters` are keys of `PARAMETERS`; `faults` statuses beside `COMMON`.

    `handler` None: the address is routed elsewhere (accounts and tokens), and described here.
    """

    id: str
    method: str
    path: str
    handler: Handler | None
    summary: str
    parameters: tuple[str, ...] = ()
    body: type[Any] | None = None
    #: a body that works
    example: Mapping[str, Any] | None = None
    #: status -> what it holds; the type of a JSON answer, or media types of a file
    answers: Mapping[int, Any]
    faults: tuple[int, ...] = ()
    #: may be read without an account?
    public: bool = True
    scope: str = ""
    etag: bool = True
    next: bool = False
    #: status -> what may be asked for next, as OpenAPI's links
    links: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def _text(longest: int, **more: Any) -> dict[str, Any]:
    return {"type": "string", "maxLength": longest, **more}


#: key -> a value that works with the shipped facts and the first request
EXAMPLES: Final[Mapping[str, str | int]] = MappingProxyType(
    {
        "registry": "uri-schemes",
        "name": "http",
        "id": "uri-schemes-1",
        "token": "token-0123456789abcdef",
        "format": "csv",
        "q": "http",
        "status": "permanent",
        "in": "uri-schemes",
        "about": "llm",
        "since": 0,
        "limit": 20,
    }
)
_FIELDS: Final = {
    "applications": "Programs that speak to language models",
    "contact": "Ann Example <ann@example.net>",
    "change_controller": "Example Foundation <board@example.net>",
    "references": "https://example.net/kite",
}
_REGISTRY: Final = {"type": "string", "enum": list(REGISTRIES)}
#: key -> parameter; a key may be used by several operations
PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType(
    {
        key: Parameter(name=name, place=place, schema=schema, summary=summary, example=EXAMPLES.get(key))
        for key, name, place, schema, summary in (
            ("registry", "registry", "path", _REGISTRY, "A registry's id."),
            ("name", "name", "path", _text(100, minLength=1, pattern="^[A-Za-z0-9][A-Za-z0-9+._-]*$"),
             "An entry's name."),
            ("id", "id", "path", _text(100, minLength=1, pattern="^[a-z0-9-]+$"), "A request's id."),
            ("token", "id", "path", _text(100, minLength=1, pattern="^[a-z0-9-]+$"), "An API token's id."),
            ("format", "format", "path", {"type": "string", "enum": list(MEDIA)}, "A file format."),
            ("q", "q", "query", _text(200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$"), "What to look for."),
            ("status", "status", "query", {"type": "string", "enum": [str(each) for each in Status]},
             "Entries of this status alone; each registry has its own."),
            ("state", "state", "query", {"type": "string", "enum": [str(each) for each in RequestState]},
             "Requests in this state alone."),
            ("holder", "holder", "query", {"type": "string", "enum": [str(each) for each in Role]},
             "Requests that wait for this role."),
            ("in", "registry", "query", _REGISTRY, "This registry alone."),
            ("about", "name", "query", _text(100, minLength=1, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$"),
             "Requests about this name."),
            ("after", "after", "query", _text(512, pattern="^[A-Za-z0-9_-]+$"),
             "The cursor of a part, as `next` has it."),
            ("since", "after", "query", {"type": "integer", "minimum": 0, "maximum": 999_999_999},
             "Records beyond this number."),
            ("limit", "limit", "query", {"type": "integer", "minimum": 1, "maximum": 200},
             "Items in one part."),
        )
    }
)  # fmt: skip

_ID: Final = {"id": "$response.body#/id"}
_OPENED: Final = {
    "read": {"operationId": "getRequest", "parameters": _ID},
    "step": {
        "operationId": "changeRequest",
        "parameters": {**_ID, "header.If-Match": "$response.header.ETag"},
        "requestBody": {"event": "submit"},
    },
}
_ENTRY: Final = "/registries/{registry}/entries/{name}"
_LIST: Final = ("after", "limit")
_WRITE: Final = (401, 403, 409, 412, 413, 415, 422, 428)
_EVENTS: Final = frozenset({Scope.SUBMIT, Scope.REVIEW, Scope.IANA, Scope.IESG})


def _get(
    identifier: str, path: str, handler: Handler, answer: Any, summary: str, *parameters: str, **more: Any
) -> Operation:
    faults = {404} if "{" in path else set()
    faults |= {400} if parameters else set()
    # what is looked up by a name in the query may be unknown, and a text may be refused
    faults |= {404, 422} & set(more.pop("faults", ()))
    return Operation(
        id=identifier, method="GET", path=path, handler=handler, summary=summary, parameters=parameters,
        answers={200: answer}, faults=tuple(sorted(faults)), **more,
    )  # fmt: skip


#: every operation, the most asked for first
OPERATIONS: Final[tuple[Operation, ...]] = (
    _get("getEntry", _ENTRY, reading.entry, m.EntryData, "One entry.", "registry", "name"),
    _get("listEntries", "/registries/{registry}/entries", reading.entry_list, m.EntryList,
         "Entries by name, filtered, in parts.", "registry", "q", "status", *_LIST, faults=(422,), next=True),
    _get("searchEntries", "/search", reading.search, m.SearchHits,
         "Entries of one or all registries, best first.", "q", "in", "limit", faults=(404, 422)),
    _get("listRegistries", "/registries", reading.registries, m.RegistryList, "All registries."),
    _get("getRegistry", "/registries/{registry}", reading.one_registry, m.RegistryData, "One registry.",
         "registry"),
    _get("getEntryHistory", _ENTRY + "/history", reading.history, m.History,
         "The events of a name, those of an entry that is gone too, in parts.",
         "registry", "name", "since", "limit", next=True),
    _get("listEntryVersions", _ENTRY + "/versions", reading.entry_versions, m.VersionList,
         "Every version of an entry.", "registry", "name"),
    _get("listEntryActions", _ENTRY + "/actions", reading.entry_actions, m.ActionList,
         "The events that the caller may ask for now.", "registry", "name"),
    Operation(
        id="changeEntry", method="POST", path=_ENTRY + "/events", handler=writing.entry_event,
        summary="Change an entry at once. If-Match names the version that was read; an override of a removed "
        "name sends If-None-Match: *",
        parameters=("registry", "name"), body=m.EventBody,
        example={"event": "attach-security-note", "data": {"text": "Never resolve it as root."}},
        answers={200: m.HistoryRecord},
        faults=(400, 404, *_WRITE), public=False, scope=" or ".join(sorted(_EVENTS)),
    ),
    _get("exportRegistry", "/registries/{registry}/export/{format}", reading.export,
         tuple(dict.fromkeys(media for media, _ in MEDIA.values())),
         "A registry as a file; csv-2015 holds one status, permanent where none is named.",
         "registry", "format", "status"),
    _get("listRequests", "/requests", reading.request_list, m.RequestList, "Requests, newest first.",
         "in", "state", "holder", "about", *_LIST, faults=(404, 422), next=True),
    Operation(
        id="openRequest", method="POST", path="/requests", handler=writing.open_request,
        summary="Open a draft request from a template, from fields, or both.", body=m.OpenBody,
        example={"registry": "uri-schemes", "name": "kite", "status": "provisional", "fields": _FIELDS},
        answers={201: m.RequestData}, faults=(400, 401, 403, 404, 409, 413, 415, 422),
        public=False, scope="submit", links={201: _OPENED},
    ),
    _get("getRequest", "/requests/{id}", reading.request, m.RequestData, "One request.", "id"),
    _get("getRequestHistory", "/requests/{id}/history", reading.request_history, m.History,
         "Its events, in parts.", "id", "since", "limit", next=True),
    _get("listRequestActions", "/requests/{id}/actions", reading.request_actions, m.ActionList,
         "The events that the caller may ask for now.", "id"),
    Operation(
        id="changeRequest", method="POST", path="/requests/{id}/events", handler=writing.request_event,
        summary="Take a step. If-Match names the version that was read.", parameters=("id",),
        body=m.EventBody, example={"event": "submit"},
        answers={200: m.HistoryRecord}, faults=(400, 404, *_WRITE), public=False,
        scope=" or ".join(sorted(_EVENTS)),
    ),
    Operation(
        id="check", method="POST", path="/check", handler=writing.check,
        summary="Check a template, an Internet-Draft or an RFC's text. Nothing is saved.", body=m.CheckBody,
        example={"template": "Scheme name: kite\n\nStatus: provisional\n", "fields": _FIELDS},
        answers={200: m.CheckReport}, faults=(400, 404, 413, 415, 422),
    ),
    _get("getLog", "/log", reading.log, m.History, "The log beyond a number.", "since", "limit", next=True),
    Operation(
        id="getAccount", method="GET", path="/account", handler=None,
        summary="Who the caller is, and what it may do.", answers={200: m.AccountData}, public=False,
        etag=False,
    ),
    Operation(
        id="listTokens", method="GET", path="/account/tokens", handler=None,
        summary="The API tokens of the account, without their secrets.", answers={200: m.TokenList},
        faults=(403,), public=False, scope="read", etag=False,
    ),
    Operation(
        id="makeToken", method="POST", path="/account/tokens", handler=None,
        summary="Make an API token that may do no more, and lives no longer, than the caller's own.",
        body=m.TokenBody, example={"label": "nightly copy", "scopes": ["read"], "days": 30},
        answers={201: m.TokenMade},
        faults=(403, 422), public=False, etag=False,
    ),
    Operation(
        id="revokeToken", method="DELETE", path="/account/tokens/{id}", handler=None,
        summary="Revoke an API token, at once and for good.", parameters=("token",), answers={204: None},
        faults=(403, 404), public=False, etag=False,
    ),
    _get("getHealth", "/health", reading.health, m.Health, "Does the service answer, and its store?"),
)  # fmt: skip

#: what every operation may answer beside its own
COMMON: Final = (400, 401, 405, 406, 413, 414, 421, 429, 503)
#: events, for the description of `EventBody`
EVENTS: Final = tuple(str(each) for each in EventKind)


def api_routes() -> list[Route]:
    """One route per address, in the table's order."""
    by_path: dict[str, dict[str, Handler]] = {}
    for each in OPERATIONS:
        if each.handler is not None:
            by_path.setdefault(each.path, {})[each.method] = each.handler
    return [resource(API + path, found) for path, found in by_path.items()]
