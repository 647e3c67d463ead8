"""Forms of pages: urlencoded alone, capped, no control characters."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException

from onym.errors import RegistryError

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = [
    "MAX_FIELD",
    "MAX_QUERY",
    "MAX_TEMPLATE",
    "Form",
    "check_query",
    "check_text",
    "number",
    "read_form",
]

#: characters of a pasted template, draft or RFC
MAX_TEMPLATE: Final = 1_000_000
#: characters of one field of a template
MAX_FIELD: Final = 64_000
#: characters of what is looked for
MAX_QUERY: Final = 200
#: fields of one form
_MOST_FIELDS: Final = 100
#: octets of a body that is decoded at once
_SHORT: Final = 64 * 1024
_TYPE: Final = "application/x-www-form-urlencoded"
#: C0 and C1 but tab, line feed, carriage return; PostgreSQL takes no NUL, and people see none of them
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Form(dict[str, list[str]]):
    """The values of a form, by name."""

    def text(self, name: str, default: str = "") -> str:
        """The first value of a name."""
        return self.get(name, [default])[0]


def check_query(text: str, field: str, limit: int = MAX_QUERY) -> str:
    """One value of a query, stripped. Raises RegistryError (http.bad-form) beyond `limit` characters."""
    if len(text) > limit:
        raise RegistryError(f"longer than {limit} characters", code="http.bad-form", field=field)
    return check_text(text, field, limit).strip()


def check_text(text: str, field: str, limit: int) -> str:
    """`text`, lines ended by line feeds. Raises RegistryError for one too long or with control characters."""
    if len(text) > limit:
        raise RegistryError(
            f"longer than {limit:,} characters", code="http.too-large", field=field, hint="make it shorter"
        )
    # form feeds part the pages of drafts: the readers know them
    if _CONTROL.search(text.replace("\f", "")):
        raise RegistryError(
            "holds control characters",
            code="registry.control-characters",
            field=field,
            hint="paste it as plain text",
        )
    return text.replace("\r\n", "\n")


async def read_form(request: Request) -> Form:
    """The form that was sent. Raises HTTPException 415, or RegistryError (http.bad-form)."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != _TYPE:
        raise HTTPException(415)
    # a long body is decoded aside, so that others need not wait for it
    body = await request.body()
    pairs = _pairs(body) if len(body) < _SHORT else await asyncio.to_thread(_pairs, body)
    form = Form()
    for name, value in pairs:
        limit = MAX_TEMPLATE if name == "template" else MAX_FIELD
        form.setdefault(name[:64], []).append(check_text(value, name[:64], limit))
    return form


def _pairs(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError:
        raise RegistryError("not a form in UTF-8", code="http.bad-form") from None


def number(text: str | None, field: str) -> int | None:
    """A number of at most nine digits; None for none. Raises RegistryError."""
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise RegistryError("not a number", code="http.bad-limit", field=field)
    return int(text)
