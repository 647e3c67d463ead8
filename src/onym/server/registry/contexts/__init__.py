"""One frozen context per page: the page is drawn from it, and its JSON twin is made of it."""

from __future__ import annotations

from typing import Final

from onym.server.registry.contexts.browse import (
    ComparePage,
    EntryPage,
    ErrorPage,
    HelpPage,
    HomePage,
    ListPage,
    SearchPage,
)
from onym.server.registry.contexts.parts import Chrome, Context
from onym.server.registry.contexts.work import (
    AccountPage,
    AuditPage,
    ChangePage,
    CheckResult,
    LoginPage,
    QueuePage,
    RequestPage,
    RequestsPage,
    ReviewPage,
    SubmitPage,
)

__all__ = [
    "PAGES",
    "AccountPage",
    "AuditPage",
    "ChangePage",
    "CheckResult",
    "Chrome",
    "ComparePage",
    "Context",
    "EntryPage",
    "ErrorPage",
    "HelpPage",
    "HomePage",
    "ListPage",
    "LoginPage",
    "QueuePage",
    "RequestPage",
    "RequestsPage",
    "ReviewPage",
    "SearchPage",
    "SubmitPage",
]

#: every page there is
PAGES: Final[tuple[type[Context], ...]] = (
    AccountPage,
    AuditPage,
    ChangePage,
    CheckResult,
    ComparePage,
    EntryPage,
    ErrorPage,
    HelpPage,
    HomePage,
    ListPage,
    LoginPage,
    QueuePage,
    RequestPage,
    RequestsPage,
    ReviewPage,
    SearchPage,
    SubmitPage,
)
