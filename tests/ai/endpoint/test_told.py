"""What a caller is told: nothing that others said to the function, and nothing that cannot be signed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from onym.ai.endpoint import Answer, Caller, Endpoint
from onym.ai.endpoint.context import AccessRequest
from onym.ai.messages import decode_problem
from onym.errors import AIIPError, DeniedError, DiscoveryError, UsageError

Played = Callable[..., None]
INNER = "ai://payroll.test/rows"
SAID = "user bob has no row in payroll db"


def inner(status: int, code: str) -> AIIPError:
    """How the refusal of another endpoint reaches a function that asked it."""
    body = f'{{"code":"{code}","detail":"{SAID}","retryable":true}}'.encode()
    error = decode_problem(status, "application/problem+json", body, INNER, signed=True)
    error.challenge = 'Bearer realm="payroll"'
    return error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (inner(401, "authentication-required"), 502, "upstream-failed"),
        (inner(403, "policy-denied"), 502, "upstream-failed"),
        (inner(404, "endpoint-unknown"), 502, "upstream-failed"),
        (inner(429, "too-many-requests"), 502, "upstream-failed"),
        (inner(504, "upstream-timeout"), 502, "upstream-failed"),
        (inner(500, "no-code-of-ours"), 502, "upstream-failed"),
        (DiscoveryError(SAID), 502, "upstream-failed"),
        (DiscoveryError(SAID, code="aiip.upstream-unreachable"), 502, "upstream-unreachable"),
        (DeniedError(SAID, target=INNER), 502, "upstream-failed"),
        (AIIPError(SAID, code="aiip.unavailable", target=INNER, retryable=True), 502, "upstream-failed"),
        (AIIPError(SAID, code="aiip.upstream-timeout", target=INNER), 504, "upstream-timeout"),
    ],
)
def test_what_another_endpoint_said_to_a_function_goes_to_the_log_alone(
    played: Played, caplog: pytest.LogCaptureFixture, error: AIIPError, status: int, code: str
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/relay")
        async def relay() -> int:
            raise error

        @app.resource("/stream")
        async def stream() -> AsyncIterator[int]:
            yield 1
            raise error

        heard = await post("/relay")
        problem = heard.json()
        assert (heard.status, problem["code"]) == (status, code)
        assert problem["detail"] == problem["title"]
        assert heard.get("www-authenticate") is None
        assert problem["retryable"] is (heard.get("retry-after") is not None)
        assert problem["retryable"] is (code != "upstream-failed")
        assert heard.receipt
        for each in (heard.body, (await post("/stream")).body):
            assert b"payroll" not in each
        assert SAID in caplog.text

    played(scenario)


def test_what_a_function_refuses_itself_is_told(played: Played) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/own")
        async def own(about: bool = False) -> int:
            target = f"ai://{app.authority}/own" if about else None
            raise AIIPError("closed on Sundays", code="aiip.policy-denied", target=target)

        for given in ({}, {"about": True}):
            heard = await post("/own", **given)
            assert (heard.status, heard.json()["detail"]) == (403, "closed on Sundays")

    played(scenario)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AIIPError(SAID, code="aiip.endpoint-unknown", target="ai://factory.test/own?order=7"), 404),
        (DeniedError(SAID, target="AI://Factory.test:443/own?order=7"), 403),
        (AIIPError(SAID, code="aiip.invalid-input", target="zone"), 422),
        (AIIPError(SAID, code="aiip.invalid-input", target="https://factory.test/own"), 422),
        (AIIPError(SAID, code="aiip.invalid-input", target=7), 422),  # type: ignore[arg-type]
    ],
)
def test_a_refusal_about_this_resource_is_told_however_it_names_it(
    played: Played, error: AIIPError, status: int
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/own")
        async def own(order: int = 0) -> int:
            raise error

        heard = await post("/own?order=7")
        assert (heard.status, heard.json()["detail"].partition(" (")[0]) == (status, SAID)

    played(scenario)


# what can be signed ---------------------------------------------------------------------------------------


class Everybody:
    """Lets everybody in, by this name."""

    def __init__(self, audience: str) -> None:
        self._audience = audience

    async def authorize(self, request: AccessRequest) -> Caller:
        return Caller(audience=self._audience)

    def metadata(self) -> Mapping[str, Any]:
        return {"resource": "https://factory.test/.well-known/aiip/v1"}


class Wordy:
    """A key whose signatures are as long as those of RSA 8192."""

    kid = "wordy"
    algorithm = "PS256"

    def sign(self, octets: bytes) -> bytes:
        return bytes(1024)

    def public(self) -> dict[str, str]:
        return {"kid": self.kid, "alg": self.algorithm}


LONGEST = "/" + "p" * 494


@pytest.mark.parametrize(
    ("audience", "options"),
    [("Müller", {}), ("x" * 1025, {}), ("x" * 1024, {"keys": Wordy()})],
)
def test_a_call_whose_answer_could_not_be_signed_does_nothing(
    played: Played, audience: str, options: dict[str, Any]
) -> None:
    ran = []

    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource(LONGEST, effects="write")
        def pay() -> int:
            ran.append(1)
            return 1

        heard = await post(LONGEST, "a")
        assert (heard.status, heard.json()["code"]) == (501, "receipt-unavailable")
        assert ran == []

    played(scenario, authorization=Everybody(audience), **options)


@pytest.mark.parametrize(("audience", "options"), [("x" * 1024, {}), ("x" * 256, {"keys": Wordy()})])
def test_the_longest_names_that_fit_are_served(
    played: Played, audience: str, options: dict[str, Any]
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource(LONGEST)
        def long() -> Answer:
            return Answer(content_type="x" * 255, body=b"1")

        heard = await post(LONGEST, None, ("aiip-nonce", "n" * 128))
        assert (heard.status, heard.body) == (200, b"1")
        assert heard.receipt

    played(scenario, authorization=Everybody(audience), **options)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(content_type="text/hüte"),
        Answer(content_type="text/html\r\nx-other: 1"),
        Answer(content_type="x" * 256),
        Answer(content_type=""),
        Answer(status=101),
        Answer(status=600),
        Answer(body="text"),  # type: ignore[arg-type]
        Answer(headers=(("etag", 1),)),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_cannot_be_signed_or_sent_is_a_signed_fault(played: Played, answer: Answer) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/plain")
        def plain() -> Answer:
            return answer

        app.resource("/pay", effects="write")(plain)
        for path, key in (("/plain", None), ("/pay", "a"), ("/pay", "a")):
            heard = await post(path, key)
            assert (heard.status, heard.json()["code"]) == (500, "internal")
            assert heard.receipt

    played(scenario)


@pytest.mark.parametrize("kind", ["text/hüte", "a\nb", ""])
def test_a_media_type_that_is_none_is_refused_at_the_start(played: Played, kind: str) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        def text() -> str:
            return ""

        with pytest.raises(UsageError) as refusal:
            app.resource("/text", media_type=kind)(text)
        assert (refusal.value.code, "/text" in str(app.resources)) == ("usage.bad-argument", False)

    played(scenario)
