"""Answers as octets and back. What cannot be read is no answer: never an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from onym.llm.types import Completion, Embeddings

if TYPE_CHECKING:
    from onym.uri.secret import Secret

__all__ = ["FORMAT", "pack", "unpack"]

A = TypeVar("A", Completion, Embeddings)

#: changes with the meaning of what is stored; it is part of every key
FORMAT: Final = 1
#: endings that say as much the second time; a filtered or broken answer is asked for again
_WORTH: Final = frozenset({"stop", "length", "tool_calls"})


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lies in the store."""

    format: int
    chat: Completion | None = None
    embed: Embeddings | None = None


_DECODER: Final = msgspec.json.Decoder(_Kept)


def pack(answer: Completion | Embeddings, secrets: Iterable[Secret] = ()) -> bytes | None:
    """The octets to keep; None for an answer that is not worth it, or that quotes one of `secrets`."""
    if isinstance(answer, Completion):
        if answer.finish_reason not in _WORTH:
            return None
        kept = _Kept(format=FORMAT, chat=answer)
    else:
        kept = _Kept(format=FORMAT, embed=answer)
    try:
        octets = _ENCODER.encode(kept)
    except (TypeError, ValueError, OverflowError):
        return None
    if any(_quoted(secret) in octets for secret in secrets):
        return None
    return octets


def unpack(octets: bytes, kind: type[A]) -> A | None:
    """The answer in these octets; None where they hold none of this kind."""
    try:
        kept = _DECODER.decode(octets)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    answer = kept.chat or kept.embed
    return answer if kept.format == FORMAT and isinstance(answer, kind) else None


def _plain(value: Any) -> Any:
    try:
        return list(value)  # vectors may be arrays
    except TypeError:
        raise TypeError(f"a {type(value).__name__} cannot be kept") from None


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def _quoted(secret: Secret) -> bytes:
    return msgspec.json.encode(secret.reveal())[1:-1]
