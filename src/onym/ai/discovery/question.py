"""What is to be discovered: a host, an https address or an ai URI, in one spelling. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onym.ai.anchor import anchor_of, authority_of
from onym.errors import URIError, UsageError
from onym.uri.ai import AIURI
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.ai.records import Namespace
    from onym.ai.settings import ResolverSettings

__all__ = ["Asked", "read_question"]

_LONGEST: Final = 2_048
_HINT: Final = "bank.example, https://bank.example/page, or an ai URI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question. `uri` is canonical, None where a host was asked about.

    `page` is the target of the request for the origin's page; `context` who speaks for `ai:/path`.
    """

    authority: str
    uri: str | None = None
    page: str = "/"
    context: Namespace | None = None

    @property
    def origin(self) -> str | None:
        """The origin of a DNS authority; None for a registry name and for none at all."""
        return anchor_of(self.authority)


def read_question(question: str | AIURI, settings: ResolverSettings) -> Asked:
    """The question, read. Raises UsageError for text that is none, URIError for a malformed ai URI."""
    text = str(question).strip()
    if text[:3].lower() == "ai:":
        return _of_uri(text, settings)
    if not text or len(text) > _LONGEST:
        raise _unreadable("nothing to discover is named")
    try:
        uri = URI.parse(text if "://" in text else f"https://{text}", "URI").normalize()
        if uri.scheme != "https":
            raise _unreadable("the scheme is not https: nothing is fetched over plain HTTP")
        if uri.userinfo is not None:
            raise _unreadable("it has userinfo, which discovery does not send")
        canonical = AIURI.parse(f"ai://{uri.authority}/").canonical()
    except URIError as error:
        raise _unreadable(f"no host can be read there: {error.message}") from None
    query = "" if uri.query is None else f"?{uri.query}"
    return Asked(authority=authority_of(canonical), page=(uri.path or "/") + query)


def _of_uri(text: str, settings: ResolverSettings) -> Asked:
    uri = AIURI.parse(text)
    canonical = uri.canonical()
    authority = authority_of(canonical)
    context = settings.context(AIURI.parse(canonical).path) if uri.authority is None else None
    return Asked(authority=authority, uri=canonical, context=context)


def _unreadable(message: str) -> UsageError:
    return UsageError(message, code="usage.discover", hint=_HINT)
