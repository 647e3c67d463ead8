"""From a URI to the endpoint behind it: who serves it, in which format, where, and with which key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onym._version import __version__
from onym.errors import CredentialError, LLMURIError, PolicyError
from onym.llm import dialects, profiles
from onym.llm._routes import Place, choose_api, find_place
from onym.llm.credentials import Credential, resolve
from onym.llm.providers import is_loopback
from onym.net.messages import Origin
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider, ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI

__all__ = ["EMBEDDED", "Endpoint", "find_endpoint"]

EMBEDDED = "embedded"
_DRAFT = "draft-levy-llm-uri-scheme-00"
_LONGEST_LABEL = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything about the other side that stays the same from call to call.

    `origin` is None for the embedded model before it runs. `text` is what errors and notes call the
    endpoint: no label, no key, no parameters. `label_header` is where the app label goes, None where it goes
    nowhere. `unkeyed` says why there is no key where one is wanted: such an endpoint can be explained and
    not called.
    """

    provider: Provider
    profile: profiles.Profile
    dialect: dialects.Dialect
    origin: Origin | None
    place: Place
    model: str
    text: str
    label: str | None = None
    label_header: str | None = None
    credential: Credential | None = field(default=None, repr=False)
    #: an opaque name of the credential, for the pool of connections
    credential_name: str | None = None
    unkeyed: CredentialError | None = field(default=None, repr=False)

    @property
    def embedded(self) -> bool:
        """Whether it is the model on this machine, which runs only once it was asked for."""
        return self.provider.name == EMBEDDED

    @property
    def lessons(self) -> str:
        """What is learned of the model in this wire format goes by this name: another may take more."""
        return f"{self.dialect.name} {self.text}"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must not come back in a message."""
        credential = self.credential
        if credential is None:
            return ()
        return (credential.secret,) if credential.session is None else (credential.secret, credential.session)

    @property
    def signed(self) -> bool:
        """Whether requests are signed one by one, instead of carrying the key."""
        return self.credential is not None and self.credential.access_id is not None

    def headers(self) -> tuple[tuple[str, str | Secret], ...]:
        """The headers of every request to this endpoint, but for a signature."""
        found: list[tuple[str, str | Secret]] = [
            ("Accept", "application/json"),
            ("User-Agent", f"onym/{__version__}"),
            *self.dialect.headers,
        ]
        if self.credential is not None and not self.signed:
            key = self.credential.secret.reveal()
            header, prefix = self.provider.key_place(key, self.credential.source)
            found += [(header, Secret(prefix + key)), *self.credential.headers]
        if self.label is not None and self.label_header is not None:
            found.append((self.label_header, self.label))
        return tuple(found)

    def sign(
        self, method: str, url: str, headers: tuple[tuple[str, str | Secret], ...], body: bytes
    ) -> tuple[tuple[str, str | Secret], ...]:
        """The headers with a signature of this request, made now."""
        from onym.llm import _aws  # the only scheme there is; its library is an extra

        assert self.credential is not None  # noqa: S101 - `signed` says so
        assert self.origin is not None  # noqa: S101 - nothing is sent before there is one
        # what a pattern of another provider leaves open is no region: nothing is signed for its host
        named = self.place.region if self.provider.signing is not None else None
        region = named or _aws.region_of(self.origin.host)
        return _aws.sign(
            method=method, url=url, headers=headers, body=body, credential=self.credential, region=region
        )

    def origin_of(self, operation: str) -> Origin | None:
        """Where this operation is served."""
        label = self.provider.first_labels.get(operation)
        if self.origin is None or label is None:
            return self.origin
        first, dot, rest = self.origin.host.partition(".")
        known = first in self.provider.first_labels.values()
        return replace(self.origin, host=label + dot + rest) if known else self.origin

    def running_at(self, origin: Origin, key: Secret) -> Endpoint:
        """This endpoint, once the embedded model runs there and takes that key."""
        credential = Credential(secret=key, source=EMBEDDED)
        return replace(self, origin=origin, credential=credential, credential_name=credential.digest)

    def with_credential(self, credential: Credential) -> Endpoint:
        """This endpoint with the credential that came after its own."""
        return replace(self, credential=credential, credential_name=credential.digest)


def find_endpoint(
    uri: LLMURI,
    *,
    providers: ProviderTable,
    policy: Policy,
    environ: Mapping[str, str],
    key_given: str = "userinfo",
) -> Endpoint:
    """The endpoint that this URI names.

    A word that is an alias stands for the provider's host, unless a port is given. Raises
    UnsupportedError for a wire format that the row does not know, LLMURIError for a label that no header
    can carry, or a part of a path that nobody gave.
    """
    host, aliased = uri.host, None
    if uri.port is None:
        aliased = providers.alias(host)
    row = aliased or providers.find(host, uri.port)
    if aliased is not None:
        host = aliased.hosts[0]
    text = _text(uri)
    provider, chosen = choose_api(uri, row)
    # a part of the environment's that is no secret goes where its secrets may go
    known = environ if policy.environment_credentials else {}
    place = find_place(uri, provider, host, known, chosen)
    fixed: dict[str, Any] = {
        "provider": provider,
        "profile": profiles.find(provider.name, uri.model, provider.dialect),
        "dialect": dialects.get(provider.dialect),
        "place": place,
        "model": uri.model,
        "text": text,
    }
    if provider.name == EMBEDDED:
        _allow_embedded(policy, text)
        return Endpoint(origin=None, **fixed)
    found = _key(uri, provider, policy, environ, key_given)
    credential: Credential | None = found.get("credential")
    spoken_for = place.label_used or (credential is not None and credential.access_id == uri.label)
    label = None if spoken_for else uri.label
    return Endpoint(
        origin=_origin(host, uri.port, provider),
        label=label,
        label_header=_label_header(label, provider),
        **found,
        **fixed,
    )


def _key(
    uri: LLMURI, provider: Provider, policy: Policy, environ: Mapping[str, str], given: str
) -> dict[str, Any]:
    try:
        found = resolve(uri, provider, policy, environ, given=given)
    except CredentialError as error:
        # kept without its frames, which would live as long as the client
        return {"unkeyed": error.with_traceback(None)}
    return {"credential": found, "credential_name": None if found is None else found.digest}


def _origin(host: str, port: int | None, provider: Provider) -> Origin:
    # HTTP to loopback alone (draft 5.1, 10.2); whether that may be reached is the transport's to say
    return Origin("http" if is_loopback(host) else "https", host, port or provider.default_port)


def _text(uri: LLMURI) -> str:
    """The URI without what is private or long: userinfo, parameters, fragment."""
    return uri.without_key().with_label(None).without_params(*uri.params).with_fragment(None).render()


def _allow_embedded(policy: Policy, text: str) -> None:
    # starting a model takes this machine's memory and processor: a URI from outside must not decide on that
    if not policy.environment_credentials or (
        policy.allow_hosts is not None and EMBEDDED not in policy.allow_hosts
    ):
        raise PolicyError(
            "the policy does not let a URI start the model on this machine", reason="embedded", endpoint=text
        )


def _label_header(label: str | None, provider: Provider) -> str | None:
    header = None if label is None else provider.label_header(label)
    if header is None or label is None:
        return None
    if (
        len(label) > _LONGEST_LABEL
        or label != label.strip(" ")
        or not label.isascii()
        or not label.isprintable()
    ):
        raise LLMURIError(
            "the app label cannot be the value of a header",
            code="llm.bad-label",
            component="userinfo",
            clause=f"{_DRAFT} 4.2.1",
        )
    return header
