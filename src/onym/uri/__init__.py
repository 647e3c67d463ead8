"""URIs: RFC 3986 strictly, `llm://` connection strings, `ai:` names, secrets and redaction.

The ground floor: the standard library alone, no I/O, no clock, no environment. `redact` is the module's
name here; the function is `onym.redact`, or `onym.uri.redact.redact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.uri.ai import AIURI
    from onym.uri.generic import URI
    from onym.uri.llm import LLMURI, Report, check, parse
    from onym.uri.llm_check import Diagnostic
    from onym.uri.llm_syntax import Params
    from onym.uri.log_filter import RedactingFilter, install_logging_filter
    from onym.uri.parameters import DEFAULT_LIMITS, Limits
    from onym.uri.redact import redact_stream
    from onym.uri.secret import Secret

_HOME = {
    "AIURI": "onym.uri.ai",
    "DEFAULT_LIMITS": "onym.uri.parameters",
    "Diagnostic": "onym.uri.llm_check",
    "LLMURI": "onym.uri.llm",
    "Limits": "onym.uri.parameters",
    "Params": "onym.uri.llm_syntax",
    "RedactingFilter": "onym.uri.log_filter",
    "Report": "onym.uri.llm",
    "Secret": "onym.uri.secret",
    "URI": "onym.uri.generic",
    "check": "onym.uri.llm",
    "install_logging_filter": "onym.uri.log_filter",
    "parse": "onym.uri.llm",
    "redact_stream": "onym.uri.redact",
}

__all__ = [
    "AIURI",
    "DEFAULT_LIMITS",
    "LLMURI",
    "URI",
    "Diagnostic",
    "Limits",
    "Params",
    "RedactingFilter",
    "Report",
    "Secret",
    "check",
    "install_logging_filter",
    "parse",
    "redact_stream",
]

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
