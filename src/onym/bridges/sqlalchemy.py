"""`LLMURIType`: a SQLAlchemy column for `llm://` URIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onym.bridges._sdk import require_extra
from onym.errors import SecretError, UsageError
from onym.uri.llm import LLMURI

with require_extra("sqlalchemy", "sqlalchemy"):
    from sqlalchemy.types import Text, TypeDecorator

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

__all__ = ["LLMURIType"]


class LLMURIType(TypeDecorator[LLMURI]):
    """A URI stored as text, `LLMURI` in Python.

    The column's declaration decides about keys. By default a URI is stored without its key, so that a
    database dump contains none. `on_key="refuse"` raises SecretError instead, and `store_key=True` stores the
    key, in plain text unless you pass `encrypt` and `decrypt` (text to text, called with the complete URI).
    SQLAlchemy logs bound values and quotes texts in errors: if they may contain keys, set
    `hide_parameters=True` on the engine.
    """

    impl = Text
    cache_ok = True

    def __init__(
        self,
        *,
        store_key: bool = False,
        on_key: str = "drop",
        encrypt: Callable[[str], str] | None = None,
        decrypt: Callable[[str], str] | None = None,
    ) -> None:
        if on_key not in ("drop", "refuse"):
            raise UsageError('on_key must be "drop" or "refuse"')
        if (encrypt is None) is not (decrypt is None):
            raise UsageError("encrypt and decrypt must be passed together")
        super().__init__()
        # attributes have the arguments' names, because SQLAlchemy makes its cache key from them
        self.store_key = store_key or encrypt is not None
        self.on_key = on_key
        self.encrypt = encrypt
        self.decrypt = decrypt

    def process_bind_param(self, value: str | LLMURI | None, dialect: Dialect) -> str | None:
        """Return the text to store. Raises URIError for invalid text."""
        if value is None:
            return None
        uri = LLMURI.parse(value)
        if not self.store_key:
            uri = self._strip_key(uri)
        text = uri.render(reveal=True)
        return text if self.encrypt is None else self.encrypt(text)

    def process_result_value(self, value: Any, dialect: Dialect) -> LLMURI | None:
        """Parse a stored text."""
        if value is None:
            return None
        return LLMURI.parse(value if self.decrypt is None else self.decrypt(value))

    def process_literal_param(self, value: str | LLMURI | None, dialect: Dialect) -> str:
        """Return the text for a statement that is shown to people, without a key. SQLAlchemy quotes it."""
        if value is None:
            return "NULL"
        uri = LLMURI.parse(value)
        return (uri if self.store_key else self._strip_key(uri)).render()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Keep this type when the column is compared with text."""
        return self

    def _strip_key(self, uri: LLMURI) -> LLMURI:
        hidden = uri.render() != uri.render(reveal=True)
        if hidden and self.on_key == "refuse":
            raise SecretError(
                "this column does not accept a URI with a key",
                code="secret.stored",
                hint="store uri.without_key(), or refer to the key with ?auth=env:NAME",
            )
        if not hidden:
            return uri
        return uri.without_key().without_params(*uri.withheld)
