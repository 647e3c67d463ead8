"""Every test runs in an empty environment: no keys, no proxies, no configuration of this machine."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("json_support", "stream_support", "contract.oracle")

_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}
# it looks for new examples, and keeps those that fail: before the other, whose settings it would inherit
settings.register_profile("thorough", **_COMMON, max_examples=2_000, derandomize=False)
# the same examples in every run
settings.register_profile("default", **_COMMON, max_examples=50, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# a run in the background of a shell starts with Ctrl-C ignored, and hands that on to every process that a
# test starts and interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: tests of one module that go to a worker together
_PARCEL = 20


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, which would take a third of the time and find nothing.

    Modules and tests live until the run ends, so no later garbage collection needs to visit them either.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Parcels for the workers, the slowest first: xdist's work grows with the square of their number."""
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            module = item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(f"{module} {seen[module] // _PARCEL}"))
            seen[module] += 1
    yield
    if config.getoption("loadgroup", default=False):
        for item in items:
            _name_group(item)
    items.sort(key=lambda item: "e2e" not in item.path.parts)


def _name_group(item: Any) -> None:
    """Add the group to the ID, from which xdist reads it.

    pytest-xdist 3.8 writes the group to an attribute that pytest 9.2 no longer reads, and then hands out each
    test alone, without a word, so that every worker starts the servers of every module
    (https://github.com/pytest-dev/pytest-xdist/issues/1386).
    """
    marker = item.get_closest_marker("xdist_group")
    if not item.nodeid.endswith(f"@{marker.args[0]}"):
        item._id = type(item.id).parse(f"{item.nodeid}@{marker.args[0]}")
    assert item.nodeid.endswith(f"@{marker.args[0]}")


_MISSING_PACKAGE = re.compile(r"apt-get install ([\w.+-]+)")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line what to install for the tests that were skipped."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    found = [match[1] for match in map(_MISSING_PACKAGE.search, reasons) if match is not None]
    if found:
        packages = " ".join(sorted(set(found)))
        terminalreporter.write_line(
            f"{len(found)} tests were skipped; to run them too: apt-get install {packages}"
        )


_AMBIENT = ("_API_KEY", "_TOKEN", "_PROXY", "_proxy")


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No credential, proxy or configuration of the person who runs the tests takes part in them."""
    for name in list(os.environ):
        if name.endswith(_AMBIENT) or (name.startswith("ONYM_") and name not in _KEEP):
            monkeypatch.delenv(name)
    # a folder without a configuration, in which browsers may write
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "without-configuration"))
    monkeypatch.setenv("ONYM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "responses"))


@pytest.fixture(autouse=True)
def _no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of other machines do not exist, and no name server of this one is asked for them."""
    lookup = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if not name or ":" in name or name in _HERE or name.endswith(".localhost"):
            return lookup(host, *args, **options)
        try:
            socket.inet_aton(name)
        except OSError:
            raise socket.gaierror(socket.EAI_NONAME, f"no name server is asked for {name}") from None
        return lookup(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


#: names that need no name server
_HERE = {"localhost", "ip6-localhost", socket.gethostname()}
#: caches that the whole run shares
_KEEP = {"ONYM_CACHE", "ONYM_TEST_PEERS"}


@pytest.fixture(autouse=True)
def _streams_of_sdks_may_run() -> None:
    """Those of MCP and A2A end for good once any server of this process got a signal, in an earlier test."""
    module = sys.modules.get("sse_starlette.sse")
    if module is not None:
        module.AppStatus.should_exit = False
