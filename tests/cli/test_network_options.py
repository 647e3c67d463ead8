"""`--proxy`, `--ca`, `--cert` and `--cert-key` in every command that calls an endpoint, with real servers.

The endpoint is at `pub.example`, which only the proxy's hosts file knows, or on this computer with TLS. Its
certificate is of a private authority, and it takes only clients with a certificate of that authority.
"""

from __future__ import annotations

import json
import shlex
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from net_support import Authority
from onym.testing.fake_provider import FakeProvider
from proxy_support import RunningProxy, microsocks, tinyproxy, tls_relay
from support import as_subtests

PASSWORD = "hunter2-hunter2"


@dataclass(frozen=True)
class Company:
    """An endpoint behind a proxy, with files for a client of it."""

    fake: FakeProvider
    proxy: RunningProxy
    port: int
    ca: str
    cert: str
    key: str

    @property
    def uri(self) -> str:
        return f"llm://pub.example:{self.port}/fake-model"

    @property
    def proxy_url(self) -> str:
        return f"http://ann:{PASSWORD}@127.0.0.1:{self.proxy.port}"

    @property
    def options(self) -> list[str]:
        return ["--proxy", self.proxy_url, *self.certificates]

    @property
    def certificates(self) -> list[str]:
        return ["--ca", self.ca, "--cert", self.cert, "--cert-key", self.key]

    def tunnels(self) -> int:
        return len(self.proxy.requests())


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    authority = Authority()
    context = authority.server("pub.example", "localhost", "127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)
    client = authority.ca.issue_cert("ann@corp.example")
    for name, blobs in (("cert.pem", client.cert_chain_pems), ("key.pem", [client.private_key_pem])):
        (folder / name).write_bytes(b"".join(blob.bytes() for blob in blobs))
    authority.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    with (
        FakeProvider() as fake,
        tls_relay(fake.port, context) as port,
        tinyproxy(login=("ann", PASSWORD)) as proxy,
    ):
        ca, cert, key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        yield Company(fake, proxy, port, ca, cert, key)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "ONYM_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("ONYM_CONFIG", str(tmp_path / "config.toml"))


def write_config(company: Company, tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(
        f'[endpoints]\nteam = "{company.uri}"\n[network]\nproxy = "{company.proxy_url}"\n'
        f'ca_files = ["{company.ca}"]\nclient_cert = "{company.cert}"\nclient_key = "{company.key}"\n',
        encoding="utf-8",
    )
    file.chmod(0o600)
    return file


COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "chat": (("chat", "{uri}", "Hi"), "Hi"),
    "chat, streamed": (("chat", "--stream", "{uri}", "Hi"), "Hi"),
    "embed": (("embed", "{uri}", "Hi"), '"embedding"'),
    "models list": (("models", "list", "{uri}"), "fake-model"),
    "models show": (("models", "show", "{uri}"), "fake-model"),
    "ping": (("ping", "{uri}"), "fake-model is among them"),
    "batch": (("batch", "{uri}", "-", "-o", "{output}"), ""),
}


@as_subtests("name", COMMANDS)
def test_a_command_reaches_a_server_through_the_proxy_with_certificates(
    name: str, run: Any, company: Company, tmp_path: Path
) -> None:
    words, text = COMMANDS[name]
    output = tmp_path / f"{name}.jsonl"
    before = company.tunnels()
    filled = [word.format(uri=company.uri, output=output) for word in words]
    ran = run(*filled, *company.options, stdin='{"prompt": "Hi"}\n' if name == "batch" else None)
    assert ran.code == 0, ran.err
    assert text in ran.out
    assert company.tunnels() > before
    assert PASSWORD not in ran.out + ran.err
    if name == "batch":
        assert json.loads(output.read_text())["status"] == "ok"


@as_subtests("name", COMMANDS)
def test_a_command_reads_the_network_of_the_configuration(
    name: str, run: Any, company: Company, tmp_path: Path
) -> None:
    write_config(company, tmp_path)
    words, text = COMMANDS[name]
    output = tmp_path / f"{name}.jsonl"
    before = company.tunnels()
    filled = [word.format(uri="team", output=output) for word in words]
    ran = run(*filled, stdin='{"prompt": "Hi"}\n' if name == "batch" else None)
    assert ran.code == 0, ran.err
    assert text in ran.out
    assert company.tunnels() > before


def test_onym_proxy_names_a_proxy_and_environment_means_the_usual_variables(
    run: Any, company: Company
) -> None:
    words = ["chat", company.uri, "Hi", *company.certificates]
    assert run(*words, env={"ONYM_PROXY": company.proxy_url}).out == "Hi\n"
    environ = {"ONYM_PROXY": "environment", "HTTPS_PROXY": company.proxy_url}
    assert run(*words, env=environ).out == "Hi\n"


def test_without_the_option_no_variable_is_read(run: Any, company: Company) -> None:
    before = company.tunnels()
    ran = run("chat", company.uri, "Hi", *company.certificates, env={"HTTPS_PROXY": company.proxy_url})
    assert ran.code == 6
    assert company.tunnels() == before


def test_the_command_line_is_stronger_than_the_variable_and_that_than_the_configuration(
    run: Any, company: Company, tmp_path: Path
) -> None:
    write_config(company, tmp_path)
    explain = ("explain", "--json", "team")

    def proxy_of(*words: str, env: dict[str, str] | None = None) -> tuple[Any, Any]:
        network = run(*explain, *words, env=env).json["network"]
        return network["proxy"], network["proxy_source"]

    assert proxy_of() == (f"http://127.0.0.1:{company.proxy.port}", "the configuration")
    other = {"ONYM_PROXY": "http://other.example:1"}
    assert proxy_of(env=other) == ("http://other.example:1", "ONYM_PROXY")
    assert proxy_of("--proxy", "http://third.example:2") == ("http://third.example:2", "--proxy")
    assert proxy_of("--proxy", "none") == (None, None)
    assert proxy_of(env={"ONYM_PROXY": "none"}) == (None, None)


def test_none_switches_the_proxy_off_for_the_call_too(run: Any, company: Company, tmp_path: Path) -> None:
    write_config(company, tmp_path)
    before = company.tunnels()
    assert run("chat", "team", "Hi", "--proxy", "none").code == 6
    assert company.tunnels() == before


def test_explain_and_ping_say_which_proxy_and_authorities_are_in_use(run: Any, company: Company) -> None:
    explained = run("explain", "--json", company.uri, *company.options).json
    assert explained["network"]["proxy"] == f"http://127.0.0.1:{company.proxy.port}"
    assert explained["network"]["resolved_by_proxy"] is True
    assert explained["network"]["authorities"][-1] == company.ca
    assert explained["network"]["client_cert"] == company.cert
    # the proxy looks up the name: there is no address to check
    assert explained["policy"] == {"name": "local", "allowed": True, "reason": None}
    text = run("explain", company.uri, *company.options).out
    assert (
        f"through http://127.0.0.1:{company.proxy.port} (from --proxy); CA: the system, {company.ca}" in text
    )
    assert "the policy cannot check its addresses" in text
    assert company.ca in text
    assert PASSWORD not in text

    steps = {
        step["step"]: step for step in run("ping", "--json", company.uri, *company.options).json["steps"]
    }
    assert list(steps) == ["key", "route", "name", "connect", "tls", "request"]
    assert steps["route"]["proxy"] == f"http://127.0.0.1:{company.proxy.port}"
    assert steps["route"]["authorities"][-1] == company.ca
    assert steps["name"]["addresses"] == []
    text = run("ping", company.uri, *company.options, env={"SSL_CERT_FILE": company.ca}).out
    assert "CA: SSL_CERT_FILE, " in text
    assert f"through http://127.0.0.1:{company.proxy.port} (from --proxy); CA: " in text
    assert "looked up by the proxy" in text
    assert PASSWORD not in text


def test_explain_of_a_direct_connection_says_so(run: Any) -> None:
    ran = run("explain", "--json", "llm://openai/gpt-4.1")
    assert ran.json["network"]["proxy"] is None
    assert ran.json["network"]["resolved_by_proxy"] is False
    assert ran.json["policy"]["allowed"] is None
    assert run("explain", "--json", "llm://embedded/x").json["network"] is None


def test_an_untrusted_uri_gets_no_proxy_that_looks_up_its_name(run: Any, company: Company) -> None:
    words = ("llm://pub.example/m", "--policy", "untrusted", *company.options)
    verdict = run("explain", "--json", *words).json["policy"]
    assert verdict == {"name": "untrusted", "allowed": False, "reason": "proxy-resolution"}
    before = company.tunnels()
    ran = run("chat", "--json", *words, "Hi", "--key-stdin", stdin="made-up-key-of-nobody")
    assert ran.json["error"]["code"] == "net.refused.proxy-resolution"
    assert company.tunnels() == before


def test_a_socks_proxy_works_too(run: Any, company: Company) -> None:
    with microsocks() as socks:
        proxy = f"socks5h://127.0.0.1:{socks.port}"
        assert run("chat", company.uri, "Hi", "--proxy", proxy, *company.certificates).out == "Hi\n"


def test_the_commands_of_ai_use_the_proxy_too(run: Any, company: Company) -> None:
    words = ["ai", "discover", "pub.example", "--no-dns", "--policy", "trusted"]
    assert run(*words, "--proxy", company.proxy_url, *company.certificates).code != 0
    # nothing listens there, but the proxy was asked for it
    assert "pub.example:443" in company.proxy.requests()
    assert run(*words, "--json", env={"ONYM_PROXY": "ftp://x"}).json["error"]["code"] == "usage.proxy"


def test_a_server_on_this_computer_has_tls_where_its_authority_is_named(run: Any, company: Company) -> None:
    uri = f"llm://localhost:{company.port}/fake-model"
    assert run("chat", uri, "Hi", *company.certificates).out == "Hi\n"
    assert run("explain", "--json", uri, *company.certificates).json["url"].startswith("https://localhost:")
    # without it, it is plain HTTP as ever
    assert run("explain", "--json", uri).json["url"].startswith("http://localhost:")


def test_the_hint_about_an_unknown_authority_works_as_it_is_printed(run: Any, company: Company) -> None:
    words = ["chat", "--json", "--proxy", company.proxy_url, company.uri, "Hi"]
    error = run(*words).json["error"]
    assert error["code"] == "net.tls.certificate"
    assert "--ca FILE" in error["hint"]
    assert run(*words[:1], *words[2:], "--ca", company.ca, "--cert", company.cert, "--cert-key",
               company.key).out == "Hi\n"  # fmt: skip


def test_the_next_command_keeps_proxy_and_certificates_but_no_password(run: Any, company: Company) -> None:
    error = run("chat", "--json", company.uri, "Hi", *company.options[:4]).json["error"]
    words = shlex.split(error["next"])
    assert words[:3] == ["onym", "ping", company.uri]
    assert words[words.index("--ca") + 1] == company.ca
    assert words[words.index("--proxy") + 1] == company.proxy_url.replace(PASSWORD, "***")


def test_a_batch_says_how_to_go_on_with_its_proxy(run: Any, company: Company, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "Hi"}\n', encoding="utf-8")
    words = ["batch", company.uri, str(rows), "-o", str(tmp_path / "out.jsonl")]
    ran = run(*words, *company.certificates, "--proxy", f"http://127.0.0.1:{company.proxy.port}")
    assert ran.code != 0
    again = shlex.split(ran.err.partition("run: onym ")[2].splitlines()[0])
    for option in ("--proxy", "--ca", "--cert", "--cert-key"):
        assert option in again


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--proxy", "ftp://user:hunter2-hunter2@x"), "usage.proxy"),
        (("--proxy", "http://user:hunter2-hunter2@x:99999"), "usage.proxy"),
        (("--cert-key", __file__), "usage.command-line"),
        (("--ca", "/no/such/file"), "usage.command-line"),
        (("--ca", __file__), "usage.tls"),
        (("--cert", __file__), "usage.tls"),
    ],
)
def test_what_cannot_be_used_is_said_without_the_password(
    words: tuple[str, ...], code: str, run: Any, company: Company
) -> None:
    ran = run("chat", "--json", f"llm://localhost:{company.port}/m", "Hi", *words)
    assert ran.json["error"]["code"] == code
    assert PASSWORD not in ran.out + ran.err


@pytest.mark.parametrize(
    ("words", "env", "told"),
    [
        ((), {}, True),
        (("--proxy", "none"), {}, False),
        ((), {"ONYM_PROXY": "none"}, False),
    ],
)
def test_a_proxy_that_was_switched_off_is_not_suggested(
    words: tuple[str, ...], env: dict[str, str], told: bool, run: Any, company: Company
) -> None:
    proxy = f"http://127.0.0.1:{company.proxy.port}"
    ran = run("chat", "--json", company.uri, "Hi", *words, env={"HTTPS_PROXY": proxy, **env})
    assert ran.code == 6
    assert ("HTTPS_PROXY" in ran.json["error"].get("hint", "")) is told
