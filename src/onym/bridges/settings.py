"""`env("LLM_URL")`: read the URI of an application's model from a variable, for web frameworks.

Django uses `env` in settings.py, Flask `FlaskOnym(app)`, and FastAPI `FastAPIOnym()` as lifespan and
dependency: `Annotated[onym.AsyncClient, Depends(llm)]`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from onym.errors import ConfigError, URIError, UsageError
from onym.llm.client import AsyncClient, Client, aconnect, connect
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.net.config import NetConfig
    from onym.net.policy import Policy

__all__ = ["FastAPIOnym", "FlaskOnym", "env"]

_NAME = "LLM_URL"


def env(
    name: str = _NAME,
    *,
    default: str | LLMURI | None = None,
    strict: bool = False,
    environ: Mapping[str, str] | None = None,
) -> LLMURI:
    """Parse the URI in a variable, or `default` if the variable is not set or empty.

    Raises ConfigError, which names the variable but never shows its value, if it is missing or not an
    `llm://` URI. `strict` also rejects what the draft forbids.
    """
    text = (os.environ if environ is None else environ).get(name, "").strip()
    value: str | LLMURI | None = text or default
    if value is None:
        raise ConfigError(
            f"the variable {name} is not set",
            code="config.no-variable",
            hint=f"set it to a URI, such as {name}=llm://openai/gpt-5.4-mini",
        )
    try:
        return LLMURI.parse(value, strict=strict)
    except URIError as error:
        source = f"the variable {name}" if text else f"the default for {name}"
        failure = ConfigError(f"{source} is not a valid llm:// URI: {error}", code="config.bad-uri")
    # no frame with the text and no cause that quotes it stays with the error
    del text, value
    raise failure


class FlaskOnym:
    """A Flask extension: `FlaskOnym(app)`, or `init_app(app)` later.

    It reads `app.config["LLM_URL"]` (text or an LLMURI), or the variable of that name, and keeps one client
    per application, which threads share. The text in `app.config` is replaced by an LLMURI.
    """

    def __init__(
        self,
        app: Any = None,
        *,
        name: str = _NAME,
        policy: Policy | None = None,
        network: NetConfig | None = None,
    ) -> None:
        self._name = name
        self._policy = policy
        self._network = network
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Any) -> None:
        """Read the URI for this application. Raises ConfigError without one."""
        value = app.config.get(self._name)
        environ = {self._name: value} if isinstance(value, str) else None
        uri = value if isinstance(value, LLMURI) else env(self._name, environ=environ)
        app.config[self._name] = uri
        app.extensions["onym"] = _SharedClient(uri, self._policy, self._network)

    @property
    def client(self) -> Client:
        """The client of the current application, created on first use."""
        from flask import current_app  # late: only Flask applications use it

        shared = current_app.extensions.get("onym")
        if not isinstance(shared, _SharedClient):
            raise UsageError("this application has no Onym client; call init_app(app)")
        return shared.get()

    def close(self, app: Any) -> None:
        """Close the application's connections."""
        app.extensions["onym"].close()


class _SharedClient:
    """The client of one application."""

    def __init__(self, uri: LLMURI, policy: Policy | None, network: NetConfig | None) -> None:
        self._uri = uri
        self._policy = policy
        self._network = network
        self._lock = threading.Lock()
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"Onym({str(self._uri)!r})"

    def get(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = connect(self._uri, policy=self._policy, network=self._network)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class FastAPIOnym:
    """One AsyncClient for a FastAPI or Starlette application: a lifespan and a dependency.

    `lifespan` opens and closes the client with the application. The instance itself is the dependency that
    returns it. `uri` defaults to the variable `name`, which is read when the application starts.
    """

    def __init__(
        self,
        uri: str | Secret | LLMURI | None = None,
        *,
        name: str = _NAME,
        policy: Policy | None = None,
        network: NetConfig | None = None,
    ) -> None:
        self._uri = Secret(uri) if isinstance(uri, str) else uri
        self._name = name
        self._policy = policy
        self._network = network
        self._client: AsyncClient | None = None

    def __repr__(self) -> str:
        return f"FastAPIOnym({self._name!r})"

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """The lifespan for `FastAPI(lifespan=…)`; in your own lifespan use `async with llm.lifespan(app)`."""
        uri = env(self._name) if self._uri is None else self._uri
        async with aconnect(uri, policy=self._policy, network=self._network) as client:
            self._client = client
            try:
                yield
            finally:
                self._client = None

    async def __call__(self) -> AsyncClient:
        """Return the client. Raises UsageError outside the lifespan."""
        if self._client is None:
            raise UsageError("the client exists only while the application runs; pass lifespan=llm.lifespan")
        return self._client
