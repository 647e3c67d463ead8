"""The rules of an HTTPS gateway to ai names, without a server: what passes, is refused, is recorded.

`onym.server.gateway` is the gateway that follows them. The files of the audit log need a system with `fcntl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.ai.gateway.audit import AuditReport, verify_lines
    from onym.ai.gateway.audit_file import AuditLog, remove_old_logs, repair_log, rotate_log, verify_log
    from onym.ai.gateway.forwarding import Refusal, make_refusal
    from onym.ai.request_validation import GatewayRequestHead, validate_gateway_head

__all__ = [
    "AuditLog",
    "AuditReport",
    "GatewayRequestHead",
    "Refusal",
    "make_refusal",
    "remove_old_logs",
    "repair_log",
    "rotate_log",
    "validate_gateway_head",
    "verify_lines",
    "verify_log",
]

#: public name -> the module that defines it
_HOME = {
    "AuditLog": "onym.ai.gateway.audit_file",
    "AuditReport": "onym.ai.gateway.audit",
    "GatewayRequestHead": "onym.ai.request_validation",
    "Refusal": "onym.ai.gateway.forwarding",
    "make_refusal": "onym.ai.gateway.forwarding",
    "remove_old_logs": "onym.ai.gateway.audit_file",
    "repair_log": "onym.ai.gateway.audit_file",
    "rotate_log": "onym.ai.gateway.audit_file",
    "validate_gateway_head": "onym.ai.request_validation",
    "verify_lines": "onym.ai.gateway.audit",
    "verify_log": "onym.ai.gateway.audit_file",
}

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
