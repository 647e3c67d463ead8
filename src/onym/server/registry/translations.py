"""Languages of the pages: which one a visitor reads, and the texts of each.

English is the language of the templates; `texts/LANGUAGE.json` has the translations by English text.
Templates mark their texts for Jinja's i18n extension. Only the templates of `TRANSLATED` are in other
languages; another page is completely English. A visitor's language is that of the cookie, which a link sets,
or of Accept-Language.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import NullTranslations
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from onym.accounts.sign_in import sanitize_target
from onym.errors import UnknownEntryError
from onym.server.registry.urls import LANGUAGE_COOKIE, make_route

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

#: language -> its name in itself
LANGUAGES: Final[Mapping[str, str]] = {"en": "English", "de": "Deutsch"}
DEFAULT: Final = "en"
#: templates whose texts are in every language
TRANSLATED: Final = frozenset({"base.html", "home.html", "list.html", "login.html"})
_LANGUAGE: Final[ContextVar[str]] = ContextVar("page_language", default=DEFAULT)
_YEAR: Final = 366 * 24 * 3600
#: ranges of Accept-Language that are read
_MOST_RANGES: Final = 20


class Translations(NullTranslations):
    """The texts of one language: English text -> translation. A text without one stays English."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        if language != DEFAULT:
            data = files("onym.server.registry").joinpath("texts", f"{language}.json").read_bytes()
            self.texts = json.loads(data)

    def gettext(self, message: str) -> str:
        """Return the translation of a text."""
        return self.texts.get(message, message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        """Return the translation of the form for this number. Both languages have one form for one."""
        return self.gettext(msgid1 if n == 1 else msgid2)


@cache
def load_translations(language: str) -> Translations:
    """Return the texts of a language, read once."""
    return Translations(language)


def translate_text(message: str) -> str:
    """Return a text in the language in force. As a filter it is for texts that are not a template's own.

    `_()` takes its text for HTML and for a format, so names and an operator's words must not get there.
    """
    return load_translations(_LANGUAGE.get()).gettext(message)


def _ngettext(one: str, many: str, number: int) -> str:
    return load_translations(_LANGUAGE.get()).ngettext(one, many, number)


def install_translations(environment: Environment) -> None:
    """Let the templates translate: `_()`, `gettext()` and `{% trans %}`."""
    environment.add_extension("jinja2.ext.i18n")
    environment.install_gettext_callables(translate_text, _ngettext, newstyle=True)  # type: ignore[attr-defined]


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Translate the texts inside the block."""
    token = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def choose_language(request: Request) -> str:
    """Return the language of the cookie, or the best of Accept-Language (RFC 9110 12.5.4)."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    best, language = 0.0, DEFAULT
    for part in request.headers.get("accept-language", "").split(",")[:_MOST_RANGES]:
        name, _, quality = part.strip().lower().partition(";q=")
        found = name.partition("-")[0]
        try:
            weight = min(float(quality), 1.0) if quality else 1.0
        except ValueError:
            weight = 0.0
        if found in LANGUAGES and weight > best:
            best, language = weight, found
    return language


async def set_language(request: Request) -> Response:
    """GET: remember a language in a cookie, and go back to the page in `next`."""
    language = request.path_params["language"]
    if language not in LANGUAGES:
        raise UnknownEntryError(
            f"there are no pages in the language {language[:20]!r}",
            code="http.unknown-language",
            field="language",
            hint=f"Choose one of {', '.join(LANGUAGES)}.",
        )
    response = RedirectResponse(sanitize_target(request.query_params.get("next")), 303)
    response.set_cookie(
        LANGUAGE_COOKIE, language, max_age=_YEAR, httponly=True, samesite="lax",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    response.headers["cache-control"] = "no-store"
    return response


ROUTES: Final = (make_route("/language/{language}", {"GET": set_language}),)
