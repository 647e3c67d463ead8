"""What stands between the network and a handler.

`Visitor`, `current` and `require` say who asks and what they may do; `conditional` holds ETags and cursors;
`audit_as` names a write for the audit log. The rest are ASGI middlewares that `create_app` puts in order.
"""

from __future__ import annotations

from onym.server.security.audit import audit_as
from onym.server.security.conditional import (
    check_cursor,
    check_match,
    entity_tag,
    is_fresh,
    page_size,
    version_tag,
)
from onym.server.security.visitor import Visitor, actor, current, require

__all__ = [
    "Visitor",
    "actor",
    "audit_as",
    "check_cursor",
    "check_match",
    "current",
    "entity_tag",
    "is_fresh",
    "page_size",
    "require",
    "version_tag",
]
