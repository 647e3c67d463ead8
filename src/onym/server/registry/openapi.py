"""The OpenAPI 3.1 document, made from the table of operations and the types that they use."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from onym._version import __version__
from onym.server.registry.api.models import Problem
from onym.server.registry.api.operations import COMMON, OPERATIONS, PARAMETERS, Operation
from onym.server.registry.render import accepts, encode
from onym.server.registry.urls import API
from onym.server.security import entity_tag, is_fresh

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["document", "openapi_document"]

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = "application/problem+json"
_VERSION_TAG: Final = r'^"[0-9]{1,15}-json"$'


def _types() -> list[Any]:
    found: list[Any] = [Problem]
    for each in OPERATIONS:
        found += [each.body] if each.body is not None else []
        found += [kind for kind in each.answers.values() if not isinstance(kind, tuple | None)]
    return list(dict.fromkeys(found))


@cache
def document() -> dict[str, Any]:
    """The whole document, as plain data."""
    types = _types()
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    references = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(API + each.path, {})[each.method.lower()] = _operation(each, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Onym registry",
            "version": __version__,
            "summary": "URI schemes, llm parameters and ai namespaces: read, check, request, decide.",
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


def _operation(each: Operation, references: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.id,
        "summary": each.summary,
        "parameters": [_parameter(key) for key in each.parameters],
        "responses": {str(status): _answer(each, kind, references) for status, kind in each.answers.items()},
        "security": [{"token": []}] if not each.public else [{}, {"token": []}],
    }
    if each.scope:
        found["description"] = f"Needs the scope {each.scope}."
    if each.method == "GET":
        found["responses"]["304"] = {"description": "The client has it."}
    if 428 in each.faults:
        found["parameters"].append(
            {
                "name": "If-Match",
                "in": "header",
                # an override may be about a name that has no entry any more
                "required": each.id != "changeEntry",
                "description": "The ETag of what was read.",
                "schema": {"type": "string", "pattern": _VERSION_TAG},
                "example": '"1-json"',
            }
        )
    if each.id == "changeEntry":
        found["parameters"].append(
            {
                "name": "If-None-Match",
                "in": "header",
                "required": False,
                "description": "For an override of a name that was removed, in place of If-Match.",
                "schema": {"const": "*"},
            }
        )
    if each.body is not None:
        content = {"application/json": {"schema": references[each.body], "example": dict(each.example or {})}}
        found["requestBody"] = {"required": True, "content": content}
    for status, links in each.links.items():
        found["responses"][str(status)]["links"] = links
    for status in sorted({*COMMON, *each.faults}):
        found["responses"][str(status)] = _fault(status, references)
    return found


def _parameter(key: str) -> dict[str, Any]:
    each = PARAMETERS[key]
    example = {} if each.example is None else {"example": each.example}
    return {
        "name": each.name,
        "in": each.place,
        "required": each.place == "path",
        "description": each.summary,
        "schema": dict(each.schema),
        **example,
    }


def _answer(each: Operation, kind: Any, references: dict[Any, Any]) -> dict[str, Any]:
    if kind is None:
        return {"description": each.summary}
    if isinstance(kind, tuple):
        content = {
            media: {"schema": {} if media == "application/json" else {"type": "string"}} for media in kind
        }
    else:
        content = {"application/json": {"schema": references[kind]}}
    headers: dict[str, Any] = {}
    if each.etag:
        headers["ETag"] = {"schema": {"type": "string"}, "description": "For If-None-Match, or If-Match."}
    if each.next:
        headers["Link"] = {"schema": {"type": "string"}, "description": "rel=next, where more follows."}
    return {"description": each.summary, "content": content, "headers": headers}


#: what some faults say in a header: how to sign in, what may be asked, when to come again
_FAULT_HEADERS: Final = {401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After"}


def _fault(status: int, references: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {_PROBLEM: {"schema": references[Problem]}},
    }
    if status in _FAULT_HEADERS:
        found["headers"] = {_FAULT_HEADERS[status]: {"required": True, "schema": {"type": "string"}}}
    return found


@cache
def _encoded() -> tuple[bytes, str]:
    body = encode(document())
    return body, entity_tag(body)


async def openapi_document(request: Request) -> Response:
    """GET: the document."""
    accepts(request, ("application/json",))
    body, tag = _encoded()
    headers = {"etag": tag, "cache-control": "no-cache"}
    if is_fresh(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type="application/json")
