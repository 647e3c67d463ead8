"""The pages for people: the front page, a resource, invoking it by a form, a result that can be kept."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse, Response

from onym.ai.gateway import doors
from onym.ai.gateway.form import fields_of, input_of
from onym.ai.records import Invocation
from onym.errors import AIIPError, AIURIError, DeniedError, URIError
from onym.server.gateway.answers import page, witness_of
from onym.server.gateway.draw import draw
from onym.server.gateway.views import HomeView, gateway_address, resource_view, result_view
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from onym.ai.gateway.form import Field
    from onym.ai.records import Description, Resolution, Result
    from onym.server.gateway.parts import Parts
    from onym.server.gateway.relay import Relay
    from onym.server.gateway.shelf import Kept
    from onym.server.gateway.visit import Visit

__all__ = ["Site"]

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 64
#: the page made it, and a caller may have changed it
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Site:
    """The pages of one gateway."""

    def __init__(self, parts: Parts, relay: Relay) -> None:
        self._parts = parts
        self._relay = relay

    def home(self, visit: Visit) -> Response:
        """Where an ai URI can be typed; with one, what it is in both its forms."""
        name = self._parts.settings.name
        text = dict(_pairs(visit.query)).get("uri", "").strip()
        if not text:
            return page(draw(HomeView(name=name)))
        try:
            view, plain = self._typed(text)
        except URIError as error:
            view = HomeView(name=name, typed=text, fault=error.message, hint=error.hint or "")
            return page(draw(view), 400)
        return RedirectResponse(view.href, 303) if plain else page(draw(view))

    def _typed(self, text: str) -> tuple[HomeView, bool]:
        """What was typed, and whether it was its one spelling already."""
        from onym.uri.ai_typed import from_typed  # late: idna is slow to import

        typed = from_typed(text)
        uri = typed.uri.target
        view = HomeView(
            name=self._parts.settings.name,
            typed=text,
            uri=str(uri),
            shown=typed.unicode,
            warnings=tuple(each.message for each in typed.warnings),
            href=gateway_address(self._parts.settings, uri),
        )
        return view, text == str(uri) and not typed.warnings

    async def resource(self, visit: Visit, uri: AIURI) -> Response:
        """The page of an ai URI."""
        resolution = await self._relay.resolve(uri)
        closed = self._closed(resolution)
        if closed is not None and closed.code != "aiip.policy-denied":
            raise closed  # it would not even describe itself without a token
        description, result = await self._relay.describe(visit, resolution)
        witness_of(self._parts, visit, result)
        return self._drawn(visit, resolution, description, result, closed=closed)

    def _closed(self, resolution: Resolution) -> AIIPError | None:
        try:
            doors.check_authority(resolution, self._parts.settings.own_hosts)
        except DeniedError as error:
            if resolution.entry is None or error.hint is None:
                raise
            return error
        return None

    def _drawn(
        self,
        visit: Visit,
        resolution: Resolution,
        description: Description,
        result: Result,
        *,
        status: int = 200,
        **more: Any,
    ) -> Response:
        view = resource_view(
            self._parts.settings,
            resolution,
            description,
            result,
            csrf=visit.form_key.token,
            key=secrets.token_urlsafe(18),
            **more,
        )
        return page(draw(view), status)

    async def invoke(self, visit: Visit, body: bytes) -> Response:
        """A filled form: invoke, keep the result, go on to its page. A second click gets the same result."""
        form = self._form(visit, body)
        uri = _target(form.get("uri", ""))
        self._relay.note(visit, uri)
        doors.check_loop(uri, self._parts.settings.own_hosts)
        with self._parts.slots.take(visit.client, uri.authority_text or ""):
            resolution = await self._relay.resolve(uri)
            doors.check_authority(resolution, self._parts.settings.own_hosts)
            description, described = await self._relay.describe(visit, resolution)
            doors.check_description(uri, description)
            fields = fields_of(description.input)
            typed = _filled(fields, form)
            try:
                content = input_of(fields, typed)
            except AIIPError as fault:
                return self._drawn(
                    visit, resolution, description, described, status=422, typed=typed, fault=fault
                )
            invocation = Invocation(
                uri=uri,
                body=content,
                content_type="application/json" if content else None,
                headers=self._relay.onward(visit, plain=True),
                idempotency_key=_key(form.get("key", "")),
            )
            result = await self._relay.invoke(invocation, resolution)
        owner = visit.form_key.reveal().reveal()
        name = self._parts.shelf.put(
            result,
            witness_of(self._parts, visit, result),
            owner,
            self._parts.clock(),
            client=visit.client,
        )
        return RedirectResponse(f"/results/{name}", 303)

    def _form(self, visit: Visit, body: bytes) -> dict[str, str]:
        """The fields of the form. Raises DeniedError unless it is from a page that this browser got here."""
        kind = (visit.field("content-type") or "").partition(";")[0].strip().lower()
        if kind != _FORM:
            raise AIIPError("a form is sent here", code="aiip.unsupported-media-type")
        form = dict(_pairs(body))
        if not visit.form_key.fits(form.get("csrf_token", "")):
            raise DeniedError(
                "the form's token is missing, or was given to another browser",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="load the page again and send the form from there",
            )
        return form

    def result(self, visit: Visit, name: str, part: str) -> Response:
        """A result that was kept: its page, content or receipts. Raises AIIPError where there is none."""
        kept = None if visit.cookie is None else self._parts.shelf.find(name, visit.cookie)
        if kept is None or part not in {"", *_FILES}:
            raise AIIPError(
                "no such result; they are kept for 15 minutes, for the browser that asked",
                code="aiip.task-not-found",
            )
        if not part:
            return page(draw(result_view(self._parts.settings, name, kept)))
        return _file(kept, part)


#: part of a result -> the name of the file that it becomes
_FILES: Final = {"body": "result", "receipt": "receipt.jwt", "gateway-receipt": "gateway-receipt.jwt"}


def _file(kept: Kept, part: str) -> Response:
    content = {
        "body": kept.result.body,
        "receipt": kept.result.token.encode("ascii"),
        "gateway-receipt": kept.witness.encode("ascii"),
    }[part]
    headers = {
        "content-disposition": f'attachment; filename="{_FILES[part]}"',
        "content-security-policy": "default-src 'none'; sandbox",
        # whatever it says of itself, it is kept and not shown
        "content-type": "application/octet-stream" if part == "body" else "application/jwt",
    }
    return Response(content, 200, headers)


def _pairs(octets: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            octets.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise AIIPError(f"a form has {_MOST_FIELDS} fields at most", code="aiip.bad-request") from None


def _target(text: str) -> AIURI:
    uri = AIURI.parse(text)
    if str(uri.target) != text:
        raise AIURIError(
            "the target is another spelling of an ai URI", code="ai.non-canonical", hint=str(uri.target)
        )
    return uri


def _key(text: str) -> str | None:
    if text and not _KEY.fullmatch(text):
        raise AIIPError("the form's key is not one that this page gave", code="aiip.bad-request")
    return text or None


def _filled(fields: tuple[Field, ...], form: dict[str, str]) -> dict[str, str]:
    return {each.name: form.get(f"in{index}", "") for index, each in enumerate(fields)}
