"""`LLMURIField`: an `llm://` URI as a field of a Pydantic model or of pydantic-settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from onym.bridges._sdk import require_extra
from onym.errors import URIError
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

with require_extra("pydantic", "pydantic"):
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
    from pydantic_core import PydanticCustomError, core_schema

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue

__all__ = ["LLMURIField", "pydantic_type"]


class _Field:
    """How Pydantic parses and serializes an LLMURI. `strict` also rejects what the draft forbids."""

    __slots__ = ("_strict",)

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        # two steps, so that errors of the second show the result of the first and not the text
        return core_schema.chain_schema(
            [
                core_schema.no_info_plain_validator_function(self._parse_value),
                core_schema.no_info_plain_validator_function(_require_valid),
            ],
            serialization=core_schema.plain_serializer_function_ser_schema(
                _render_masked, when_used="json-unless-none"
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "format": "uri", "pattern": "^[Ll][Ll][Mm]://"}

    def _parse_value(self, value: Any) -> LLMURI | _InvalidURI:
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        elif isinstance(value, Secret):
            value = value.reveal()
        if not isinstance(value, str | LLMURI):
            return _InvalidURI("an llm:// URI must be a string", "llm.not-text")
        try:
            return LLMURI.parse(value, strict=self._strict)
        except URIError as error:
            return _InvalidURI(str(error), error.code)


class _InvalidURI(NamedTuple):
    """The reason why a text is not a valid URI, in place of the text."""

    reason: str
    code: str


def _require_valid(value: LLMURI | _InvalidURI) -> LLMURI:
    if isinstance(value, _InvalidURI):
        raise PydanticCustomError("llm_uri", "{reason}", {"reason": value.reason, "code": value.code})
    return value


def _render_masked(value: LLMURI) -> str:
    return value.render()


def pydantic_type(*, strict: bool = False) -> Any:
    """Return the annotation of an LLMURI field, for `uri: pydantic_type(strict=True)`.

    Text (also as SecretStr) is parsed like `LLMURI.parse`. The value prints, and dumps as JSON, without its
    key; `model_dump()` keeps the value itself. The error for an invalid text does not quote it. Pydantic's
    errors about the complete model, such as a missing field, quote its input: set `hide_input_in_errors=True`
    to stop that.
    """
    return Annotated[LLMURI, _Field(strict=strict)]


if TYPE_CHECKING:
    LLMURIField = LLMURI
else:
    LLMURIField = pydantic_type()
