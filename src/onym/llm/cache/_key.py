"""The name of a request in the cache: a keyed hash of everything that may change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from onym.llm._plan import encode
from onym.llm.cache._value import FORMAT
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.plan import Plan

__all__ = ["LENGTH", "name_of"]

LENGTH: Final = 32
#: headers that say how to talk, not what is asked
_MANNERS: Final = frozenset({"accept", "content-type", "user-agent", "accept-encoding"})


def name_of(plan: Plan, key: bytes) -> bytes:
    """The name of this request, made with the store's random key.

    The credential goes in as a keyed hash of its own: answers to one are not handed to another. A
    label and a version header count, as does each octet of the body.
    """
    digest = blake2b(key=key, digest_size=LENGTH, person=b"onym-cache-name")
    for part in _parts(plan, key):
        # with its length, so that no two lists of parts read alike
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _parts(plan: Plan, key: bytes) -> Iterator[bytes]:
    endpoint = plan.endpoint
    yield str(FORMAT).encode()
    yield plan.operation.encode()
    yield endpoint.dialect.name.encode()
    yield plan.method.encode()
    if endpoint.embedded:
        from onym.llm import embedded

        # port and key are new each time that it starts
        yield b"embedded:" + endpoint.model.encode()
        yield embedded.identity(endpoint.model)
    else:
        yield str(plan.frame.origin).encode()
        yield _credential(endpoint.secrets, key)
    yield plan.target.encode()
    for name, value in _headers(plan.headers):
        yield name
        yield value
    yield b"\0body"
    yield b"" if plan.body is None else encode(plan.body)


def _credential(secrets: Iterable[Secret], key: bytes) -> bytes:
    digest = blake2b(key=key, digest_size=LENGTH, person=b"onym-cache-cred")
    for secret in secrets:
        octets = secret.reveal().encode()
        digest.update(len(octets).to_bytes(8, "big"))
        digest.update(octets)
    return digest.digest()


def _headers(headers: Iterable[tuple[str, str | Secret]]) -> list[tuple[bytes, bytes]]:
    return sorted(
        (name.lower().encode(), value.encode())
        for name, value in headers
        if not isinstance(value, Secret) and name.lower() not in _MANNERS
    )
