"""The HTTPS gateway to ai names: maps, resolves, verifies, and hands on what proves where it comes from."""

from __future__ import annotations

from onym.server.gateway.load import load_gateway_settings
from onym.server.gateway.make import create_gateway
from onym.server.gateway.settings import GatewaySettings

__all__ = ["GatewaySettings", "create_gateway", "load_gateway_settings"]
