"""The HTTPS gateway for `ai:` names: it resolves a name, calls the authority, forwards verified results."""

from __future__ import annotations

from onym.server.gateway.factory import create_gateway
from onym.server.gateway.settings import GatewaySettings, load_gateway_settings

__all__ = ["GatewaySettings", "create_gateway", "load_gateway_settings"]
