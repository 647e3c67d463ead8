"""Onym: one string for a model. `llm://` URIs parsed, checked, and turned into safe calls.

Everything above the URI floor loads when it is first used, so `import onym` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr
from onym._version import __version__

if TYPE_CHECKING:
    from onym import errors
    from onym.errors import OnymError, OnymWarning
    from onym.llm.client import AsyncClient, Client, aconnect, connect
    from onym.llm.config import Config
    from onym.llm.plan import Plan
    from onym.llm.providers import normalize
    from onym.llm.types import (
        Completion,
        DocumentPart,
        Embeddings,
        Event,
        Finish,
        ImagePart,
        Message,
        ModelInfo,
        ReasoningDelta,
        TextDelta,
        TextPart,
        Tool,
        ToolCall,
        ToolCallDelta,
        Usage,
    )
    from onym.net.policy import Policy
    from onym.uri.ai import AIURI
    from onym.uri.generic import URI
    from onym.uri.llm import LLMURI, Report, check, parse
    from onym.uri.llm_check import Diagnostic
    from onym.uri.log_filter import RedactingFilter, install_logging_filter
    from onym.uri.parameters import Limits
    from onym.uri.redact import redact, redact_stream
    from onym.uri.secret import Secret

#: public name -> the module that defines it
_HOME = {
    "AIURI": "onym.uri.ai",
    "AsyncClient": "onym.llm.client",
    "Client": "onym.llm.client",
    "Completion": "onym.llm.types",
    "Config": "onym.llm.config",
    "Diagnostic": "onym.uri.llm_check",
    "DocumentPart": "onym.llm.types",
    "Embeddings": "onym.llm.types",
    "Event": "onym.llm.types",
    "Finish": "onym.llm.types",
    "ImagePart": "onym.llm.types",
    "LLMURI": "onym.uri.llm",
    "Limits": "onym.uri.parameters",
    "Message": "onym.llm.types",
    "ModelInfo": "onym.llm.types",
    "OnymError": "onym.errors",
    "OnymWarning": "onym.errors",
    "Plan": "onym.llm.plan",
    "Policy": "onym.net.policy",
    "ReasoningDelta": "onym.llm.types",
    "RedactingFilter": "onym.uri.log_filter",
    "Report": "onym.uri.llm",
    "Secret": "onym.uri.secret",
    "TextDelta": "onym.llm.types",
    "TextPart": "onym.llm.types",
    "Tool": "onym.llm.types",
    "ToolCall": "onym.llm.types",
    "ToolCallDelta": "onym.llm.types",
    "URI": "onym.uri.generic",
    "Usage": "onym.llm.types",
    "aconnect": "onym.llm.client",
    "check": "onym.uri.llm",
    "connect": "onym.llm.client",
    "errors": "onym.errors",
    "install_logging_filter": "onym.uri.log_filter",
    "normalize": "onym.llm.providers",
    "parse": "onym.uri.llm",
    "redact": "onym.uri.redact",
    "redact_stream": "onym.uri.redact",
}

__all__ = [
    "AIURI",
    "LLMURI",
    "URI",
    "AsyncClient",
    "Client",
    "Completion",
    "Config",
    "Diagnostic",
    "DocumentPart",
    "Embeddings",
    "Event",
    "Finish",
    "ImagePart",
    "Limits",
    "Message",
    "ModelInfo",
    "OnymError",
    "OnymWarning",
    "Plan",
    "Policy",
    "ReasoningDelta",
    "RedactingFilter",
    "Report",
    "Secret",
    "TextDelta",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "__version__",
    "aconnect",
    "check",
    "connect",
    "errors",
    "install_logging_filter",
    "normalize",
    "parse",
    "redact",
    "redact_stream",
]


__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
