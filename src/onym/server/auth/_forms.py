"""Forms as texts: each field once, none too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onym.errors import RegistryError
from onym.server.security.csrf import MOST_FIELDS, MOST_FILES

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Form", "read_form"]

_LONGEST: Final = 16 * 1024
_LONGEST_BODY: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Form:
    """What a form holds, by field; a field may come several times."""

    values: Mapping[str, tuple[str, ...]]

    def text(self, name: str) -> str:
        """The field's value, "" where it is not there. Raises RegistryError for one that came twice."""
        found = self.values.get(name, ())
        if len(found) > 1:
            raise RegistryError("this field came twice", code="http.bad-form", field=name)
        return found[0] if found else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """All values of the field."""
        return self.values.get(name, ())


async def read_form(request: Request) -> Form:
    """The form that the request brings. Raises RegistryError for a body or a field that is too long."""
    values: dict[str, tuple[str, ...]] = {}
    # decoding is work for the whole service: these forms are short
    if len(await request.body()) > _LONGEST_BODY:
        raise RegistryError(
            f"the form is longer than {_LONGEST_BODY} octets", code="http.too-large", field="body"
        )
    async with request.form(
        max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=_LONGEST_BODY
    ) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str) or len(value) > _LONGEST:
                raise RegistryError(
                    f"a field is a text of at most {_LONGEST} characters",
                    code="http.bad-form",
                    field=name[:100],
                )
            values[name] = (*values.get(name, ()), value)
    return Form(values)
