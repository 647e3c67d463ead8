"""How the API answers and reads: JSON with ETags, links to the next part, strict bodies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from onym.errors import RegistryError
from onym.server.registry.render import accepts, encode
from onym.server.security import entity_tag, is_fresh

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

__all__ = ["JSON", "decoded", "only", "reply", "reply_bytes"]

JSON: Final = "application/json"
_Body = TypeVar("_Body")
#: NUL and its kind have no place in a registry, and PostgreSQL takes no NUL; form feeds part drafts' pages
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
#: lists and objects inside one another
_DEEPEST: Final = 12


def reply(
    request: Request,
    value: Any,
    *,
    status: int = 200,
    tag: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """`value` as JSON; `tag` is its ETag where a version gives one, else the body's own."""
    accepts(request, (JSON,))
    body = encode(value)
    return reply_bytes(request, body, tag or entity_tag(body), status=status, headers=headers)


def reply_bytes(
    request: Request, body: bytes, tag: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Octets that are JSON; 304 where the client has them."""
    given = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if status == 200 and request.method in ("GET", "HEAD") and is_fresh(request, tag):
        return Response(status_code=304, headers=given)
    return Response(body, status, given, media_type=JSON)


def only(request: Request, *names: str) -> None:
    """Refuse what the query says twice, and what nothing reads. Raises RegistryError."""
    for name in ("limit", "after"):
        if request.query_params.get(name) == "":
            raise RegistryError("this parameter is empty", code="http.bad-limit", field=name)
    for name in request.query_params:
        if name not in names or len(request.query_params.getlist(name)) > 1:
            raise RegistryError(
                "this parameter is not known here, or came twice",
                code="http.bad-form",
                field=name[:64],
                hint=f"known: {', '.join(names)}" if names else "this address takes none",
            )


async def decoded(request: Request, kind: type[_Body]) -> _Body:
    """The JSON body, whole and strict.

    Raises HTTPException 415 and RegistryError: http.bad-form (400) for what the schema does not allow,
    registry.bad-data (422) for free data that it cannot judge.
    """
    accepts(request, (JSON,))
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != JSON:
        raise HTTPException(415)
    body = await request.body()
    try:
        found = msgspec.json.decode(body, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(
            f"the body is not what this takes: {error}"[:300], code="http.bad-form", field="body"
        ) from None
    _clean(msgspec.to_builtins(found), 0)
    return found


def _clean(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise RegistryError("the body nests too deep", code="registry.bad-data", field="body")
    if isinstance(value, str) and _CONTROL.search(value):
        raise RegistryError(
            "a text in the body holds control characters", code="registry.bad-data", field="body"
        )
    if isinstance(value, dict):
        for key, item in value.items():
            _clean(key, depth + 1)
            _clean(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _clean(item, depth + 1)
