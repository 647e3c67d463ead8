"""The operations of the JSON API as data, from which routes and the OpenAPI 3.1 document are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from onym import __version__
from onym.registry.engine import list_request_states
from onym.registry.records import RequestState, Role, Scope, Status
from onym.registry.registries import PROFILES, REGISTRIES, get_catalog
from onym.registry.store import Statistics
from onym.server.registry.api import handlers
from onym.server.registry.api import models as m
from onym.server.registry.api.models import Problem
from onym.server.registry.responses import MEDIA_TYPES, negotiate_media_type
from onym.server.registry.urls import API_PREFIX, OPENAPI_URL, Handler, make_route
from onym.server.responses import make_cached_response, make_entity_tag

if TYPE_CHECKING:
    from starlette.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: its location, JSON schema, meaning and a working example."""

    name: str
    place: str
    schema: Mapping[str, Any]
    summary: str
    example: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `parameters` are keys of `PARAMETERS`; `faults` statuses beside `COMMON`.

    `handler` is None if another module routes the URL (accounts and tokens).
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
    #: status -> the type of a JSON response, or the media types of a file
    answers: Mapping[int, Any]
    faults: tuple[int, ...] = ()
    #: usable without an account?
    public: bool = True
    scope: str = ""
    etag: bool = True
    next: bool = False
    #: status -> OpenAPI links to later operations
    links: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def _build_text(longest: int, **more: Any) -> dict[str, Any]:
    return {"type": "string", "maxLength": longest, **more}


#: key -> an example that works with the built-in data and the first request
EXAMPLES: Final[Mapping[str, str | int]] = {
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
_FIELDS: Final = {
    "applications": "Programs that speak to language models",
    "contact": "Ann Example <ann@example.net>",
    "change_controller": "Example Foundation <board@example.net>",
    "references": "https://example.net/kite",
}
# the document has the values in force: `_list_values`
_REGISTRY: Final = {"type": "string", "enum": list(REGISTRIES)}
_STATUS: Final = {"type": "string", "enum": [str(word) for word in Status]}
_STATE: Final = {"type": "string", "enum": [str(state) for state in RequestState]}
#: key -> parameter; a key may be used by several operations
PARAMETERS: Final[Mapping[str, Parameter]] = {
    key: Parameter(name=name, place=place, schema=schema, summary=summary, example=EXAMPLES.get(key))
    for key, name, place, schema, summary in (
        ("registry", "registry", "path", _REGISTRY, "A registry's id."),
        ("name", "name", "path", _build_text(100, minLength=1, pattern="^[A-Za-z0-9][A-Za-z0-9+._-]*$"),
         "An entry's name."),
        ("id", "id", "path", _build_text(100, minLength=1, pattern="^[a-z0-9-]+$"), "A request's id."),
        ("token", "id", "path", _build_text(100, minLength=1, pattern="^[a-z0-9-]+$"),
         "An API token's ID."),
        ("format", "format", "path", {"type": "string", "enum": list(MEDIA_TYPES)}, "A file format."),
        ("q", "q", "query", _build_text(200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$"), "The search text."),
        ("status", "status", "query", _STATUS,
         "Only entries of this status. Statuses depend on the registry."),
        ("state", "state", "query", _STATE,
         "Only requests in this state."),
        ("holder", "holder", "query", {"type": "string", "enum": [str(role) for role in Role]},
         "Only requests that wait for this role."),
        ("in", "registry", "query", _REGISTRY, "Only this registry."),
        ("about", "name", "query", _build_text(100, minLength=1, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$"),
         "Only requests about this name."),
        ("account", "account", "query", _build_text(200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$"),
         "Only acts of this login, or of `command line, USER`."),
        ("action", "action", "query", _build_text(200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$"),
         "Only this action, such as account.roles."),
        ("after", "after", "query", _build_text(512, pattern="^[A-Za-z0-9_-]+$"),
         "The cursor of a page, from `next`."),
        ("since", "after", "query", {"type": "integer", "minimum": 0, "maximum": 999_999_999},
         "Only records after this number."),
        ("limit", "limit", "query", {"type": "integer", "minimum": 1, "maximum": 200},
         "Items on one page."),
    )
}  # fmt: skip

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


def _make_read(
    identifier: str, path: str, handler: Handler, answer: Any, summary: str, *parameters: str, **more: Any
) -> Operation:
    faults = {404} if "{" in path else set()
    faults |= {400} if parameters else set()
    # a name in the query may be unknown, and a text may be rejected
    faults |= {404, 422} & set(more.pop("faults", ()))
    return Operation(
        id=identifier, method="GET", path=path, handler=handler, summary=summary, parameters=parameters,
        answers={200: answer}, faults=tuple(sorted(faults)), **more,
    )  # fmt: skip


#: every operation, the most frequent first
OPERATIONS: Final[tuple[Operation, ...]] = (
    _make_read("getEntry", _ENTRY, handlers.get_entry, m.EntryData, "One entry.", "registry", "name"),
    _make_read("listEntries", "/registries/{registry}/entries", handlers.list_entries, m.EntryList,
         "Entries by name, filtered, in pages.", "registry", "q", "status", *_LIST, faults=(422,), next=True),
    _make_read("searchEntries", "/search", handlers.search_entries, m.SearchHits,
         "Entries of one or all registries, best first.", "q", "in", "limit", faults=(404, 422)),
    _make_read("listRegistries", "/registries", handlers.list_registries, m.RegistryList, "All registries."),
    _make_read("getRegistry", "/registries/{registry}", handlers.get_registry, m.RegistryData,
         "One registry.", "registry"),
    _make_read("getEntryHistory", _ENTRY + "/history", handlers.get_entry_history, m.History,
         "The events of a name, also of a removed entry, in pages.",
         "registry", "name", "since", "limit", next=True),
    _make_read("listEntryVersions", _ENTRY + "/versions", handlers.list_entry_versions, m.VersionList,
         "Every version of an entry.", "registry", "name"),
    _make_read("listEntryActions", _ENTRY + "/actions", handlers.list_entry_actions, m.ActionList,
         "The events that the caller may use now.", "registry", "name"),
    Operation(
        id="changeEntry", method="POST", path=_ENTRY + "/events", handler=handlers.change_entry,
        summary="Change an entry at once. If-Match names the version that you read; an override of a removed "
        "name sends If-None-Match: *",
        parameters=("registry", "name"), body=m.EventBody,
        example={"event": "attach-security-note", "data": {"text": "Never resolve it as root."}},
        answers={200: m.HistoryRecord},
        faults=(400, 404, *_WRITE), public=False, scope=" or ".join(sorted(_EVENTS)),
    ),
    _make_read("exportRegistry", "/registries/{registry}/export/{format}", handlers.export_registry,
         tuple(dict.fromkeys(media for media, _ in MEDIA_TYPES.values())),
         "A registry as a file; csv-2015 contains one status, by default permanent.",
         "registry", "format", "status"),
    _make_read("listRequests", "/requests", handlers.list_requests, m.RequestList, "Requests, newest first.",
         "in", "state", "holder", "about", *_LIST, faults=(404, 422), next=True),
    Operation(
        id="openRequest", method="POST", path="/requests", handler=handlers.open_request,
        summary="Open a draft request from a template, from fields, or both.", body=m.OpenBody,
        example={"registry": "uri-schemes", "name": "kite", "status": "provisional", "fields": _FIELDS},
        answers={201: m.RequestData}, faults=(400, 401, 403, 404, 409, 413, 415, 422),
        public=False, scope="submit", links={201: _OPENED},
    ),
    _make_read("getRequest", "/requests/{id}", handlers.get_request, m.RequestData, "One request.", "id"),
    _make_read("getRequestHistory", "/requests/{id}/history", handlers.get_request_history, m.History,
         "The request's events, in pages.", "id", "since", "limit", next=True),
    _make_read("listRequestActions", "/requests/{id}/actions", handlers.list_request_actions, m.ActionList,
         "The events that the caller may use now.", "id"),
    Operation(
        id="changeRequest", method="POST", path="/requests/{id}/events", handler=handlers.change_request,
        summary="Apply an event to a request. If-Match names the version that you read.", parameters=("id",),
        body=m.EventBody, example={"event": "submit"},
        answers={200: m.HistoryRecord}, faults=(400, 404, *_WRITE), public=False,
        scope=" or ".join(sorted(_EVENTS)),
    ),
    Operation(
        id="linkMessages", method="POST", path="/registries/{registry}/messages",
        handler=handlers.link_messages,
        summary="Link the messages of a mailing list's archive (mbox or Atom) to the open requests that they "
        "are about. A second call links only new messages.",
        parameters=("registry",), body=m.ArchiveBody,
        example={"archive": "From ann@example.net Tue Dec  1 09:00:00 2026\nSubject: kite\n\n"},
        answers={200: m.ArchiveReport}, faults=(400, 404, 409, 412, 413, 415, 422), public=False,
        scope="iana or review", etag=False,
    ),
    Operation(
        id="redactLog", method="POST", path="/registries/{registry}/redactions", handler=handlers.redact_log,
        summary="Remove every line with a person's name or address from the log, or list these lines. "
        "The log's digests stay valid, and a record lists what was removed.",
        parameters=("registry",), body=m.RedactionBody,
        example={"text": "ann@example.net", "reason": "ticket 4711", "dry_run": True},
        answers={200: m.RedactionReport}, faults=(400, 401, 403, 404, 409, 413, 415, 422), public=False,
        scope="iana", etag=False,
    ),
    Operation(
        id="listAuditRecords", method="GET", path="/audit", handler=handlers.list_audit_records,
        summary="The audit log, newest first, in pages: sign-ins, refusals, and changes of accounts and "
        "tokens. Needs the role iana in every registry.",
        parameters=("account", "action", *_LIST), answers={200: m.AuditList}, faults=(403, 404, 422),
        public=False, scope="iana", etag=False, next=True,
    ),
    Operation(
        id="check", method="POST", path="/check", handler=handlers.check_template,
        summary="Check a template or the text of a specification. Nothing is saved.", body=m.CheckBody,
        example={"template": "Scheme name: kite\n\nStatus: provisional\n", "fields": _FIELDS},
        answers={200: m.CheckReport}, faults=(400, 404, 413, 415, 422),
    ),
    _make_read("getLog", "/log", handlers.get_log, m.History, "Log records after a number.", "since",
         "limit", next=True),
    Operation(
        id="getAccount", method="GET", path="/account", handler=None,
        summary="The caller's account, roles and scopes.", answers={200: m.AccountData}, public=False,
        etag=False,
    ),
    Operation(
        id="listTokens", method="GET", path="/account/tokens", handler=None,
        summary="The API tokens of the account, without their secrets.", answers={200: m.TokenList},
        faults=(403,), public=False, scope="read", etag=False,
    ),
    Operation(
        id="makeToken", method="POST", path="/account/tokens", handler=None,
        summary="Create an API token, with at most the scopes and the lifetime of the caller's token.",
        body=m.TokenBody, example={"label": "nightly copy", "scopes": ["read"], "days": 30},
        answers={201: m.TokenMade},
        faults=(403, 422), public=False, etag=False,
    ),
    Operation(
        id="revokeToken", method="DELETE", path="/account/tokens/{id}", handler=None,
        summary="Revoke an API token permanently.", parameters=("token",), answers={204: None},
        faults=(403, 404), public=False, etag=False,
    ),
    _make_read("getStatistics", "/statistics", handlers.get_statistics, Statistics,
         "Entries by status, requests by state, the median time of each stage, and the last 120 months."),
    _make_read("getHealth", "/health", handlers.get_health, m.Health,
         "The state of the service and its store."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """An operation that clients should leave: `since` when, and until when it works at least.

    `sunset` is None if no day is set yet. `successor` is the URL of what takes its place. Times have an
    offset. Raises ValueError for a sunset before `MIN_NOTICE` is over.
    """

    since: datetime
    sunset: datetime | None = None
    successor: str | None = None

    def __post_init__(self) -> None:
        if self.sunset is not None and self.sunset - self.since < MIN_NOTICE:
            raise ValueError(f"an operation works for {MIN_NOTICE.days} days after its deprecation")


#: from the deprecation of an operation to the end of its service, at least
MIN_NOTICE: Final = timedelta(days=365)
#: operation -> its deprecation; the policy is in docs/reference/registry-http.md
DEPRECATIONS: Final[dict[str, Deprecation]] = {}

#: statuses that every operation may return
COMMON: Final = (400, 401, 405, 406, 413, 414, 421, 429, 503)

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = "application/problem+json"
_VERSION_TAG: Final = r'^"[0-9]{1,15}-json"$'


def _list_types() -> list[Any]:
    found: list[Any] = [Problem]
    for operation in OPERATIONS:
        found += [operation.body] if operation.body is not None else []
        found += [kind for kind in operation.answers.values() if not isinstance(kind, tuple | None)]
    return list(dict.fromkeys(found))


@cache
def build_openapi_document(digest: str = "") -> dict[str, Any]:
    """Return the document as plain data. `digest` is of the definition in force, if there is one."""
    types = _list_types()
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    references = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(API_PREFIX + operation.path, {})[operation.method.lower()] = _build_operation(
            operation, references
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": get_catalog().title or "Onym registry",
            "version": __version__,
            "summary": f"{_list_titles()}: read, check, request, decide.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token (onym_reg_...)."}
            },
        },
    }


def _list_titles() -> str:
    """Return what the registries in force list."""
    if get_catalog().definition is None:
        return "URI schemes, llm parameters and ai namespaces"
    return ", ".join(row.title for row in REGISTRIES.values())


def _build_example(operation: Operation) -> dict[str, Any]:
    """Return a body that works with the registries in force: the table has those of URI schemes."""
    example = dict(operation.example or {})
    if operation.id not in ("openRequest", "check") or "uri-schemes" in REGISTRIES:
        return example
    row = next(iter(REGISTRIES.values()))
    profile = PROFILES[row.default_profile]
    fields = {item.id: item.heading for item in profile.fields if item.required and item.id != "status"}
    return {
        "registry": row.id,
        "status": str(row.default_status),
        "fields": {**fields, "name": "example"},
        **({"name": "example"} if operation.id == "openRequest" else {}),
    }


def _build_operation(operation: Operation, references: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [_build_parameter(key) for key in operation.parameters],
        "responses": {
            str(status): _build_answer(operation, kind, references)
            for status, kind in operation.answers.items()
        },
        "security": [{"token": []}] if not operation.public else [{}, {"token": []}],
    }
    if operation.id in DEPRECATIONS:
        found["deprecated"] = True
    if operation.scope:
        found["description"] = f"Needs the scope {operation.scope}."
    if operation.method == "GET":
        found["responses"]["304"] = {"description": "Not modified."}
    if 428 in operation.faults:
        found["parameters"].append(
            {
                "name": "If-Match",
                "in": "header",
                # an override may be about a removed entry
                "required": operation.id != "changeEntry",
                "description": "The ETag of the version that you read.",
                "schema": {"type": "string", "pattern": _VERSION_TAG},
                "example": '"1-json"',
            }
        )
    if operation.id == "changeEntry":
        found["parameters"].append(
            {
                "name": "If-None-Match",
                "in": "header",
                "required": False,
                "description": "For an override of a removed name, instead of If-Match.",
                "schema": {"const": "*"},
            }
        )
    if operation.body is not None:
        content = {
            "application/json": {
                "schema": references[operation.body],
                "example": _build_example(operation),
            }
        }
        found["requestBody"] = {"required": True, "content": content}
    for status, links in operation.links.items():
        found["responses"][str(status)]["links"] = links
    for status in sorted({*COMMON, *operation.faults}):
        found["responses"][str(status)] = _build_fault(status, references)
    return found


def _list_values(schema: Mapping[str, Any]) -> list[str]:
    """Return the values of a parameter that depend on the registries in force; [] for other parameters."""
    rows = list(REGISTRIES.values())
    if schema is _REGISTRY:
        return list(REGISTRIES)
    if schema is _STATUS:
        used = {status for row in rows for status in row.statuses}
        return [str(status) for status in Status if status in used]
    if schema is _STATE:
        profiles = {name: PROFILES[name] for row in rows for name in row.profiles}
        states = {state for profile in profiles.values() for state in list_request_states(profile)}
        return [str(state) for state in RequestState if state in states]
    return []


def _build_parameter(key: str) -> dict[str, Any]:
    parameter = PARAMETERS[key]
    example = {} if parameter.example is None else {"example": parameter.example}
    schema = dict(parameter.schema)
    values = _list_values(parameter.schema)
    if values:
        schema["enum"] = values
        example = example if parameter.example in values else {}
    elif "uri-schemes" not in REGISTRIES:
        # the other examples are of URI schemes
        example = {} if key in ("name", "id", "q", "about") else example
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.summary,
        "schema": schema,
        **example,
    }


def _build_answer(operation: Operation, kind: Any, references: dict[Any, Any]) -> dict[str, Any]:
    if kind is None:
        return {"description": operation.summary}
    if isinstance(kind, tuple):
        content = {
            media: {"schema": {} if media == "application/json" else {"type": "string"}} for media in kind
        }
    else:
        content = {"application/json": {"schema": references[kind]}}
    headers: dict[str, Any] = {}
    if operation.etag:
        headers["ETag"] = {"schema": {"type": "string"}, "description": "For If-None-Match, or If-Match."}
    if operation.next:
        headers["Link"] = {"schema": {"type": "string"}, "description": "rel=next, if there is another page."}
    return {"description": operation.summary, "content": content, "headers": headers}


#: status -> the header that its response always has
_FAULT_HEADERS: Final = {401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After"}


def _build_fault(status: int, references: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {_PROBLEM: {"schema": references[Problem]}},
    }
    if status in _FAULT_HEADERS:
        found["headers"] = {_FAULT_HEADERS[status]: {"required": True, "schema": {"type": "string"}}}
    return found


@cache
def _encode_document(digest: str) -> tuple[bytes, str]:
    body = msgspec.json.encode(build_openapi_document(digest))
    return body, make_entity_tag(body)


async def get_openapi_document(request: Request) -> Response:
    """GET: the document."""
    negotiate_media_type(request, ("application/json",))
    body, tag = _encode_document(get_catalog().digest)
    return make_cached_response(request, body, "application/json", tag=tag)


def list_api_routes() -> list[Route]:
    """Return one route per address, in the table's order, and the route of this document."""
    by_path: dict[str, dict[str, Handler]] = {}
    for operation in OPERATIONS:
        if operation.handler is not None:
            handler = _reject_unknown_parameters(operation.handler, operation.parameters)
            by_path.setdefault(API_PREFIX + operation.path, {})[operation.method] = handler
    by_path[OPENAPI_URL] = {"GET": get_openapi_document}
    return [make_route(path, handlers) for path, handlers in by_path.items()]


def _reject_unknown_parameters(handler: Handler, keys: tuple[str, ...]) -> Handler:
    names = tuple(PARAMETERS[key].name for key in keys if PARAMETERS[key].place == "query")

    async def serve(request: Request) -> Response:
        if request.scope["query_string"]:
            handlers.require_known_parameters(request, names)
        return await handler(request)

    return serve
