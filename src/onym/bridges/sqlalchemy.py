"""`LLMURIType`: a column of SQLAlchemy that holds `llm://` URIs."""

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

    What becomes of a key is said when the column is declared. By default it is left out: the URI is stored
    without it, and a database dump holds none. `on_key="refuse"` raises SecretError instead, and
    `store_key=True` stores it, in the clear unless `encrypt` and `decrypt` are given (text to text, called
    with the whole URI). Statements that SQLAlchemy logs show bound values, and its errors what a text was
    before: with a key in the clear, or texts that hold one, set `hide_parameters=True` on the engine.
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
            raise UsageError("on_key is drop or refuse")
        if (encrypt is None) is not (decrypt is None):
            raise UsageError("encrypt and decrypt go together")
        super().__init__()
        # named as the arguments are: SQLAlchemy's cache key is made of them
        self.store_key = store_key or encrypt is not None
        self.on_key = on_key
        self.encrypt = encrypt
        self.decrypt = decrypt

    def process_bind_param(self, value: str | LLMURI | None, dialect: Dialect) -> str | None:
        """The text to store. Raises URIError for text that is no URI."""
        if value is None:
            return None
        uri = LLMURI.parse(value)
        if not self.store_key:
            uri = self._strip_key(uri)
        text = uri.render(reveal=True)
        return text if self.encrypt is None else self.encrypt(text)

    def process_result_value(self, value: Any, dialect: Dialect) -> LLMURI | None:
        """The value of a stored text."""
        if value is None:
            return None
        return LLMURI.parse(value if self.decrypt is None else self.decrypt(value))

    def process_literal_param(self, value: str | LLMURI | None, dialect: Dialect) -> str:
        """A text inside of a statement that is shown to people: never with a key. SQLAlchemy quotes it."""
        if value is None:
            return "NULL"
        uri = LLMURI.parse(value)
        return (uri if self.store_key else self._strip_key(uri)).render()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Compared with a text, the column stays what it is."""
        return self

    def _strip_key(self, uri: LLMURI) -> LLMURI:
        hidden = uri.render() != uri.render(reveal=True)
        if hidden and self.on_key == "refuse":
            raise SecretError(
                "a URI that holds a key does not go into this column",
                code="secret.stored",
                hint="store uri.without_key(), or point to the key with ?auth=env:NAME",
            )
        if not hidden:
            return uri
        return uri.without_key().without_params(*uri.withheld)
