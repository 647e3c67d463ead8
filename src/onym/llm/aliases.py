"""One word for a provider's host: `llm://openai/gpt-5` is `llm://api.openai.com/gpt-5`."""

from __future__ import annotations

from onym.llm.providers import ProviderTable
from onym.uri.llm import LLMURI

__all__ = ["normalize"]


def normalize(uri: str | LLMURI, *, providers: ProviderTable | None = None) -> LLMURI:
    """The URI in its one canonical spelling, aliases replaced by the real host.

    Idempotent. `providers` defaults to the built-in table. Raises URIError for text that is no
    llm URI. (RFC 3986 6.2.2, 6.2.3; docs/explanation/decisions.md)
    """
    table = ProviderTable.builtin() if providers is None else providers
    return LLMURI.parse(uri).normalize(aliases=table.aliases())
