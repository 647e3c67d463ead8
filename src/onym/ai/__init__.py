"""`ai://` names over AIIP/HTTPS v1: resolve, describe, invoke, verify; endpoints that sign what they answer.

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names

if TYPE_CHECKING:
    from onym.ai.client import AIClient as AIClient
    from onym.ai.client import AsyncAIClient as AsyncAIClient
    from onym.ai.credentials import AssertedCredentials as AssertedCredentials
    from onym.ai.credentials import ClientCredentials as ClientCredentials
    from onym.ai.credentials import Credential as Credential
    from onym.ai.credentials import Credentials as Credentials
    from onym.ai.credentials import ExchangedCredentials as ExchangedCredentials
    from onym.ai.credentials import StaticCredentials as StaticCredentials
    from onym.ai.credentials import StoredCredentials as StoredCredentials
    from onym.ai.endpoint import Endpoint as Endpoint
    from onym.ai.oauth_metadata import Registration as Registration
    from onym.ai.records import AnchorDocument as AnchorDocument
    from onym.ai.records import Auth as Auth
    from onym.ai.records import Description as Description
    from onym.ai.records import Effects as Effects
    from onym.ai.records import EndpointEntry as EndpointEntry
    from onym.ai.records import Invocation as Invocation
    from onym.ai.records import Level as Level
    from onym.ai.records import Namespace as Namespace
    from onym.ai.records import Namespaces as Namespaces
    from onym.ai.records import Requirements as Requirements
    from onym.ai.records import Resolution as Resolution
    from onym.ai.records import Result as Result
    from onym.ai.records import Source as Source
    from onym.ai.records import Verdict as Verdict
    from onym.ai.replay import MemoryReplays as MemoryReplays
    from onym.ai.replay import ReplayFile as ReplayFile
    from onym.ai.replay import Replays as Replays
    from onym.ai.settings import ResolverSettings as ResolverSettings
    from onym.ai.sign_ins import FolderSignIns as FolderSignIns
    from onym.ai.sign_ins import KeyringSignIns as KeyringSignIns

_HOMES = {
    "onym.ai.client": "AIClient AsyncAIClient",
    "onym.ai.credentials": (
        "AssertedCredentials ClientCredentials Credential Credentials ExchangedCredentials StaticCredentials "
        "StoredCredentials"
    ),
    "onym.ai.endpoint": "Endpoint",
    "onym.ai.oauth_metadata": "Registration",
    "onym.ai.records": (
        "AnchorDocument Auth Description Effects EndpointEntry Invocation Level Namespace Namespaces "
        "Requirements Resolution Result Source Verdict"
    ),
    "onym.ai.replay": "MemoryReplays ReplayFile Replays",
    "onym.ai.settings": "ResolverSettings",
    "onym.ai.sign_ins": "FolderSignIns KeyringSignIns",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
