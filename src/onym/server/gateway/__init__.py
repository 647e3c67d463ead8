"""The HTTPS gateway to ai names: maps, resolves, verifies, and hands on what proves where it comes from."""

from __future__ import annotations

from onym.server.gateway.factory import create_gateway
from onym.server.gateway.settings import GatewaySettings, load_gateway_settings

__all__ = ["GatewaySettings", "create_gateway", "load_gateway_settings"]
