"""A key goes to one place: look-alike hosts, rows of others, and whatever listens on this machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import CredentialError, OnymError, UnsupportedError
from onym.llm.client import Client, aconnect, connect
from onym.llm.config import Config
from onym.llm.credentials import hide_environment
from onym.llm.plan import Plan
from onym.llm.providers import Provider, ProviderTable, is_loopback
from onym.net.policy import Policy

TABLE = ProviderTable.builtin()
#: every variable of every row holds its own name
ENVIRON = {name: f"key-of-{name}" for row in TABLE for name in row.key_variables}
AZURE, DATABRICKS = "mine.openai.azure.com", "dbc-1.cloud.databricks.com"
ENVIRON |= {"AZURE_OPENAI_ENDPOINT": f"https://{AZURE}/", "DATABRICKS_HOST": f"https://{DATABRICKS}"}
ACCESS, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI0K7MDENGbPxRfiCYEXAMPLEKEY"


def opened(uri: str, policy: Policy, **how: object) -> Client | None:
    try:
        return connect(uri, policy=policy, config=Config.empty(), environ=ENVIRON, **how)  # type: ignore[arg-type]
    except OnymError:
        return None


def look_alikes(row: Provider) -> Iterator[str]:
    for host in row.hosts[:2]:
        yield from (host, f"{host}.", f"{host}.evil.example", f"evil-{host}", f"x.{host}", f"{host}:444")
        yield from (f"{host}:{row.default_port}", host.upper(), host.replace(".", "-") + ".example")
    for pattern in row.host_suffixes:
        filled = pattern.lstrip(".").replace("*", "evil")
        yield from (filled, f"a.{filled}", f"evil{filled}", f"{filled}.evil.example", f"{filled}:8443")
    for word in (row.name, *row.aliases):
        yield from (word, word.upper(), f"{word}:443", f"{word}.com", f"{word}.localhost")


LOCAL = tuple(
    f"{host}:{port}"
    for host in ("localhost", "127.0.0.1", "[::1]", "host.localhost", "localhost.", "127.1", "localhost4")
    for port in (80, 1234, 3000, 4000, 8000, 8080, 11434, 30000)
)


@pytest.mark.parametrize(
    "policy", [Policy.trusted(), Policy.local(), Policy.untrusted()], ids=lambda p: p.name
)
def test_a_variable_goes_to_the_exact_hosts_of_its_row_and_nowhere_else(policy: Policy) -> None:
    hosts = {
        AZURE,
        f"other.{AZURE}",
        f"{AZURE}.evil.example",
        DATABRICKS,
        "dbc-2.cloud.databricks.com",
        *LOCAL,
    }
    hosts.update(host for row in TABLE for host in look_alikes(row))
    sent = 0
    for host in sorted(hosts):
        client = opened(f"llm://{host}/m?project=p&account=a", policy)
        if client is None or client.endpoint.credential is None:
            continue
        sent += 1
        origin, row, source = (
            client.endpoint.origin,
            client.endpoint.provider,
            client.endpoint.credential.source,
        )
        assert origin is not None
        assert source.startswith("env:")
        assert source.removeprefix("env:") in row.key_variables
        assert origin.port == row.default_port
        assert origin.host in row.hosts or origin.host in (AZURE, DATABRICKS)
    assert (sent == 0) is (policy.name == "untrusted")
    assert sent == 0 or sent > 200


def test_the_key_of_a_cloud_is_not_sent_to_whatever_listens_on_this_machine() -> None:
    clouds = {name for row in TABLE for name in row.key_variables if not is_loopback(row.host or "")}
    for row in TABLE:
        if is_loopback(row.host or ""):
            assert clouds.isdisjoint(row.key_variables), row.name
    for uri in ("llm://tgi/m", "llm://localhost:3000/m", "llm://ollama/m", "llm://localhost/m"):
        client = opened(uri, Policy.local())
        assert client is not None
        assert client.endpoint.credential is None


def pair_at(host: str) -> Plan:
    pytest.importorskip("botocore")
    client = opened(f"llm://{ACCESS}:{SECRET}@{host}/m?project=p", Policy.local())
    assert client is not None
    return client.explain("Hi")


@pytest.mark.parametrize(
    "host",
    [
        "bedrock-runtime-fips.us-east-1.amazonaws.com",
        "vpce-1-2.bedrock-runtime.us-east-1.vpce.amazonaws.com",
        "bedrock-runtime.cn-north-1.amazonaws.com.cn",
    ],
)
def test_the_secret_half_of_an_aws_pair_signs_at_hosts_that_no_row_names(host: str) -> None:
    headers = pair_at(host).request.headers
    shown = {name: value if isinstance(value, str) else value.reveal() for name, value in headers}
    assert shown["Authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert SECRET not in str(shown)


@pytest.mark.parametrize(
    "host",
    [
        "bedrock-runtime.us-east-1.amazonaws.com.evil.example",
        "evil.example",
        "api.openai.com",
        "localhost:8000",
        "localhost:11434",
        "generativelanguage.googleapis.com",
        "us-central1-aiplatform.googleapis.com",
    ],
)
def test_the_secret_half_of_an_aws_pair_goes_to_no_other_host(host: str) -> None:
    plan = pair_at(host)
    assert "authorization" not in {name.lower() for name, _ in plan.headers}
    with pytest.raises(UnsupportedError) as caught:
        plan.request  # noqa: B018 - it is made when it is asked for
    assert caught.value.code == "credential.no-region"


def test_nothing_is_signed_for_a_host_that_another_rows_pattern_matches(tmp_path: Path) -> None:
    pytest.importorskip("botocore")
    own = Provider(
        name="corp",
        title="Corp",
        host_suffixes=("*.llm.corp.example",),
        docs="",
        source="",
        checked="2026-11-21",
    )
    table = TABLE.register(own)
    for host in ("evil-aiplatform.googleapis.com", "us-east-1.llm.corp.example"):
        uri = f"llm://{ACCESS}:{SECRET}@{host}/m?project=p&location=l"
        client = opened(uri, Policy.trusted(), providers=table)
        assert client is not None
        assert client.endpoint.place.region is not None
        with pytest.raises(UnsupportedError) as caught:
            client.explain("Hi").request  # noqa: B018 - it is made when it is asked for
    assert caught.value.code == "credential.no-region"


@given(st.from_regex(r"[a-z0-9.-]{1,30}", fullmatch=True))
def test_no_host_around_a_known_one_is_that_one(text: str) -> None:
    for known in ("api.openai.com", "bedrock-runtime.us-east-1.amazonaws.com", "aiplatform.googleapis.com"):
        for host in (f"{text}{known}", f"{known}{text}", f"{text}.{known}", f"{known}.{text}"):
            client = opened(f"llm://{host}/m?project=p", Policy.trusted())
            if client is None or client.endpoint.credential is None:
                continue
            assert client.endpoint.origin is not None
            assert client.endpoint.origin.host in client.endpoint.provider.hosts


@pytest.mark.parametrize("member", ["token_uri", "token_url", "service_account_impersonation_url"])
@pytest.mark.parametrize("address", ["http://192.0.2.1/token", "http://evil.example", "ftp://h", "", 7])
def test_a_google_credential_inside_another_sends_its_secret_by_https_too(
    tmp_path: Path, member: str, address: object
) -> None:
    from onym.llm import credentials as clouds

    path = tmp_path / "credential.json"
    inner = {"type": "authorized_user", "refresh_token": "r", "client_secret": "s", member: address}
    outer = {
        "type": "impersonated_service_account",
        "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/x:generateAccessToken",
        "source_credentials": inner,
    }
    path.write_text(json.dumps(outer), encoding="utf-8")
    with pytest.raises(CredentialError, match="https") as caught:
        clouds.find_google({}, str(path))
    assert caught.value.code == "credential.unreadable"


@pytest.mark.parametrize("source", [{"executable": {"command": "touch pwned"}}, {"environment_id": "aws1"}])
def test_a_google_credential_file_starts_no_program_and_asks_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: object
) -> None:
    pytest.importorskip("google.auth")
    from onym.llm import credentials as clouds

    monkeypatch.setenv("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "credential.json"
    made = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": source,
    }
    path.write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(CredentialError):
        clouds.find_google({}, str(path))
    assert not (tmp_path / "pwned").exists()


class Told(Exception):
    """What a caller's own code raises."""


def _filter(system: str) -> str:
    raise Told


@pytest.mark.parametrize(
    ("uri", "how"),
    [
        ("llm://openai/gpt-5.4?temp=9", {}),
        ("llm://openai/gpt-5.4?api=none", {}),
        ("llm://openai/gpt-5.4?system=x", {"policy": Policy.untrusted()}),
        ("llm://openai/gpt-5.4?system=x", {"system_filter": _filter}),
        ("llm://vertex/m", {}),
        ("no-such-name", {}),
        ("llm://a b/", {}),
        ("llm://openai/gpt-5.4?cache=true", {}),
    ],
)
def test_no_frame_of_a_traceback_shows_the_environment(
    monkeypatch: pytest.MonkeyPatch, uri: str, how: dict[str, object]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"sk-{SECRET}")
    monkeypatch.setenv("ONYM_CACHE_SIZE", "much")

    def chat() -> None:
        connect(uri, **how).chat("Hi")  # type: ignore[arg-type]

    def achat() -> None:
        asyncio.run(aconnect(uri, **how).chat("Hi"))  # type: ignore[arg-type]

    for call in (chat, achat):
        with pytest.raises((OnymError, Told)) as caught:
            call()
        seen: BaseException | None = caught.value
        while seen is not None:
            trace = seen.__traceback__
            while trace is not None:
                if f"{os.sep}onym{os.sep}" in trace.tb_frame.f_code.co_filename:
                    for value in trace.tb_frame.f_locals.copy().values():
                        assert SECRET not in repr(value)
                        assert not isinstance(value, Mapping) or SECRET not in repr(dict(value))
                trace = trace.tb_next
            seen = seen.__cause__ or seen.__context__


def test_what_stands_for_the_environment_is_read_by_name_and_shows_nothing() -> None:
    made = hide_environment({"A": SECRET})
    assert (made["A"], made.get("A"), made.get("B"), made.get("B", "x")) == (SECRET, SECRET, None, "x")
    assert ("A" in made, "B" in made, len(made), list(made), dict(made)) == (
        True,
        False,
        1,
        ["A"],
        {"A": SECRET},
    )
    assert hide_environment(made) is made
    assert SECRET not in f"{made} {made!r}"
    assert not isinstance(made, Mapping)
