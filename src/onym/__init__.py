"""Onym: one string for a model. `llm://` URIs parsed, checked, and turned into safe calls.

Everything above the URI floor loads when it is first used, so `import onym` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names

if TYPE_CHECKING:
    from onym import errors as errors
    from onym.errors import OnymError as OnymError
    from onym.errors import OnymWarning as OnymWarning
    from onym.llm.client import AsyncClient as AsyncClient
    from onym.llm.client import Client as Client
    from onym.llm.client import aconnect as aconnect
    from onym.llm.client import connect as connect
    from onym.llm.config import Config as Config
    from onym.llm.plan import Plan as Plan
    from onym.llm.providers import normalize as normalize
    from onym.llm.types import Completion as Completion
    from onym.llm.types import DocumentPart as DocumentPart
    from onym.llm.types import Embeddings as Embeddings
    from onym.llm.types import Event as Event
    from onym.llm.types import Finish as Finish
    from onym.llm.types import ImagePart as ImagePart
    from onym.llm.types import Message as Message
    from onym.llm.types import ModelInfo as ModelInfo
    from onym.llm.types import ReasoningDelta as ReasoningDelta
    from onym.llm.types import TextDelta as TextDelta
    from onym.llm.types import TextPart as TextPart
    from onym.llm.types import Tool as Tool
    from onym.llm.types import ToolCall as ToolCall
    from onym.llm.types import ToolCallDelta as ToolCallDelta
    from onym.llm.types import Usage as Usage
    from onym.net.policy import Policy as Policy
    from onym.uri.ai import AIURI as AIURI
    from onym.uri.generic import URI as URI
    from onym.uri.llm import LLMURI as LLMURI
    from onym.uri.llm import Report as Report
    from onym.uri.llm import check as check
    from onym.uri.llm import parse as parse
    from onym.uri.llm_check import Diagnostic as Diagnostic
    from onym.uri.log_filter import RedactingFilter as RedactingFilter
    from onym.uri.log_filter import install_logging_filter as install_logging_filter
    from onym.uri.log_filter import remove_logging_filter as remove_logging_filter
    from onym.uri.parameters import Limits as Limits
    from onym.uri.redact import redact as redact
    from onym.uri.redact import redact_stream as redact_stream
    from onym.uri.secret import Secret as Secret

__version__ = "0.1.0"

#: module -> the public names that it defines
_HOMES = {
    "onym.errors": "errors OnymError OnymWarning",
    "onym.llm.client": "AsyncClient Client aconnect connect",
    "onym.llm.config": "Config",
    "onym.llm.plan": "Plan",
    "onym.llm.providers": "normalize",
    "onym.llm.types": (
        "Completion DocumentPart Embeddings Event Finish ImagePart Message ModelInfo ReasoningDelta "
        "TextDelta TextPart Tool ToolCall ToolCallDelta Usage"
    ),
    "onym.net.policy": "Policy",
    "onym.uri.ai": "AIURI",
    "onym.uri.generic": "URI",
    "onym.uri.llm": "LLMURI Report check parse",
    "onym.uri.llm_check": "Diagnostic",
    "onym.uri.log_filter": "RedactingFilter install_logging_filter remove_logging_filter",
    "onym.uri.parameters": "Limits",
    "onym.uri.redact": "redact redact_stream",
    "onym.uri.secret": "Secret",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
__all__ += ["__version__"]
