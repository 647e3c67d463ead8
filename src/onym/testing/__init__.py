"""For the tests of those who use Onym.

`strategies` holds hypothesis strategies for URIs, and alone needs hypothesis; `fake_provider` answers like
an OpenAI-compatible server; `clock` moves only when it is told to.
"""

from __future__ import annotations

__all__: list[str] = []
