"""Sign-in, access control and the ASGI middlewares of the web service.

`Visitor`, `get_visitor` and `require_access` tell who sent a request and what they may do.
"""

from __future__ import annotations

from onym.server.security.conditional_requests import (
    is_fresh,
    make_entity_tag,
    make_version_tag,
    parse_cursor,
    parse_page_size,
    require_match,
)
from onym.server.security.middleware import set_audit_action
from onym.server.security.visitor import Visitor, get_visitor, make_actor, require_access

__all__ = [
    "Visitor",
    "get_visitor",
    "is_fresh",
    "make_actor",
    "make_entity_tag",
    "make_version_tag",
    "parse_cursor",
    "parse_page_size",
    "require_access",
    "require_match",
    "set_audit_action",
]
