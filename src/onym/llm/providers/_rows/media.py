"""Services of images, video and speech: their hosts have names here, and no chat is spoken there."""

from __future__ import annotations

from onym.llm.providers._row import Provider
from onym.llm.providers._rows._make import (
    STRINGS,
    can,
    row,
)

__all__ = ["ROWS"]


def _other(name: str, title: str, host: str, docs: str, *aliases: str) -> Provider:
    """A service of images, video or speech: its host has a name here, and no chat is spoken there."""
    return row(
        name, title, host, docs,
        aliases=aliases, base_path="", dialect=name.replace("-", "_"), capabilities=can("", "chat"),
        source=STRINGS,
    )  # fmt: skip


ROWS = (
    _other("fal", "fal", "fal.run", "https://docs.fal.ai"),
    _other("black-forest-labs", "Black Forest Labs", "api.bfl.ai", "https://docs.bfl.ai", "bfl"),
    _other("replicate", "Replicate", "api.replicate.com", "https://replicate.com/docs/reference/http"),
    _other("prodia", "Prodia", "api.prodia.com", "https://docs.prodia.com"),
    _other("luma", "Luma", "api.lumalabs.ai", "https://docs.lumalabs.ai"),
    _other("kling", "Kling AI", "api.klingai.com", "https://app.klingai.com/global/dev/document-api"),
    _other("elevenlabs", "ElevenLabs", "api.elevenlabs.io", "https://elevenlabs.io/docs/api-reference"),
    _other("assemblyai", "AssemblyAI", "api.assemblyai.com", "https://www.assemblyai.com/docs/api-reference"),
    _other("deepgram", "Deepgram", "api.deepgram.com", "https://developers.deepgram.com/reference"),
    _other("gladia", "Gladia", "api.gladia.io", "https://docs.gladia.io"),
    _other("lmnt", "LMNT", "api.lmnt.com", "https://docs.lmnt.com"),
    _other("hume", "Hume AI", "api.hume.ai", "https://dev.hume.ai/reference"),
    _other("revai", "Rev AI", "api.rev.ai", "https://docs.rev.ai/api"),
)
