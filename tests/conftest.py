"""Every test runs in an empty environment: no keys, no proxies, no configuration of this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("json_support", "stream_support", "contract.oracle")

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# a run in the background of a shell starts with Ctrl-C ignored, and hands that on to every process that a
# test starts and interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_AMBIENT = ("_API_KEY", "_TOKEN", "_PROXY", "_proxy")


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No credential, proxy or configuration of the person who runs the tests takes part in them."""
    for name in list(os.environ):
        if name.endswith(_AMBIENT) or (name.startswith("ONYM_") and name not in _KEEP):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ONYM_CONFIG", str(Path(__file__).with_name("no-such-config.toml")))
    monkeypatch.setenv("ONYM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "responses"))


#: caches that the whole run shares
_KEEP = {"ONYM_CACHE", "ONYM_TEST_PEERS"}
