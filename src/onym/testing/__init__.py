"""Tools for the tests of applications that use Onym.

`strategies` has hypothesis strategies for URIs and is the only module that needs hypothesis. `fake_provider`
answers like an OpenAI-compatible server. `clock` moves only when a test moves it.
"""

from __future__ import annotations

__all__: list[str] = []
