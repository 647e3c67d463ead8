"""Settings from a file, from variables and from arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onym.errors import ConfigError
from onym.server.settings import RateLimit, RateLimits, Settings, load_settings
from onym.uri.secret import Secret

FULL = """
base_url = "https://registry.example.org/"
database = "postgresql+psycopg://u:sekret@db/onym"
host = "0.0.0.0"
port = 9000
allowed_hosts = ["registry.example.org", "[::1]:9000", "127.0.0.1:9000"]
trusted_proxies = ["10.0.0.0/8"]
session_seconds = 3600
idle_seconds = 600

[rates.logins]
burst = 3
per_minute = 1.5

[smtp]
host = "mail.example.org"
sender = "registry@example.org"
password = "sekret"
username = "registry"

[[oidc]]
id = "corp"
issuer = "https://id.example.org/"
client_id = "onym"
scopes = ["openid", "email"]
"""


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **given: Any) -> Settings:
    path = tmp_path / "registry.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environ=environ or {}, **given)


def test_without_anything_the_service_is_local() -> None:
    found = load_settings(environ={})
    assert (found.base_url, found.allowed_hosts, found.is_https) == (
        "http://127.0.0.1:8000",
        ("127.0.0.1:8000",),
        False,
    )
    assert (found.session_cookie, found.smtp, found.oidc) == ("onym", None, ())


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    found = load(tmp_path, FULL)
    assert found.base_url == "https://registry.example.org"
    assert found.session_cookie == "__Host-onym"
    assert found.rates.logins == RateLimit(burst=3, per_minute=1.5)
    assert found.smtp is not None
    assert (found.smtp.port, found.smtp.security) == (587, "starttls")
    assert found.oidc[0].issuer == "https://id.example.org/"
    assert "sekret" not in repr(found)


def test_variables_come_before_the_file_and_arguments_before_both(tmp_path: Path) -> None:
    environ = {
        "ONYM_REGISTRY_PORT": "9001",
        "ONYM_REGISTRY_HOST": "127.0.0.1",
        "ONYM_REGISTRY_ALLOWED_HOSTS": "a.example, b.example",
        "ONYM_REGISTRY_LOCAL_ACCOUNTS": "no",
        "ONYM_REGISTRY_SMTP_PASSWORD": "other",
        "ONYM_REGISTRY_OIDC_CORP_CLIENT_SECRET": "deep",
        "ONYM_REGISTRY_DATABASE": "",
    }
    found = load(tmp_path, FULL, environ, port=9002, host=None)
    assert (found.port, found.host, found.local_accounts) == (9002, "127.0.0.1", False)
    assert found.allowed_hosts == ("a.example", "b.example")
    assert found.smtp is not None
    assert found.smtp.password == Secret("other")
    assert found.oidc[0].client_secret == Secret("deep")
    assert found.database == Secret("postgresql+psycopg://u:sekret@db/onym")


def test_the_file_is_named_by_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("port = 1234", encoding="utf-8")
    assert load_settings(environ={"ONYM_REGISTRY_CONFIG": str(path)}).port == 1234


def test_an_empty_table_of_the_mail_server_means_no_mail(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[smtp]\n[rates]\n", encoding="utf-8")
    found = load_settings(path, environ={})
    assert found.smtp is None
    assert found.rates == RateLimits()
    environ = {"ONYM_REGISTRY_SMTP_HOST": "localhost", "ONYM_REGISTRY_SMTP_SENDER": "r@example.org"}
    found = load_settings(path, environ=environ)
    assert found.smtp is not None
    assert found.smtp.host == "localhost"


def test_a_mail_server_may_come_from_variables_alone() -> None:
    environ = {"ONYM_REGISTRY_SMTP_HOST": "localhost", "ONYM_REGISTRY_SMTP_SENDER": "r@example.org"}
    found = load_settings(environ=environ)
    assert found.smtp is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prot = 1", "port"),
        ("zzzzzz = 1", "base_url"),
        ("port = 70000", "port"),
        ("port = true", "port"),
        ('port = "x"', "port"),
        ("port = [1]", "port"),
        ('base_url = "https://x.example/path"', "base_url"),
        ('base_url = "https://x.example/?a"', "base_url"),
        ('base_url = "https://u:sekret@x.example"', "base_url"),
        ('base_url = "http://registry.example.org"', "base_url"),
        ('base_url = "ftp://x.example"', "base_url"),
        ('base_url = "https://"', "base_url"),
        ('base_url = "not a url"', "base_url"),
        ('base_url = ""', "base_url"),
        ("base_url = 7", "base_url"),
        ('allowed_hosts = "bad host"', "allowed_hosts"),
        ("allowed_hosts = 7", "allowed_hosts"),
        ("allowed_hosts = [7]", "allowed_hosts"),
        ('trusted_proxies = ["10.0.0.1/8"]', "trusted_proxies"),
        ('cookie_name = "a b"', "cookie_name"),
        ('cookie_name = "__Host-x;"', "cookie_name"),
        ("local_accounts = 1", "local_accounts"),
        ('profile = "rfc2717"', "profile"),
        ("local_accounts = false", "local_accounts"),
        ("idle_seconds = 3600\nsession_seconds = 60", "idle_seconds"),
        ("smtp = 7", "smtp"),
        ('[smtp]\nhost = "x.example"', "smtp.sender"),
        ('[smtp]\nhost = "mail..example"\nsender = "a@x.example"', "smtp.host"),
        (f'[smtp]\nhost = "{"x" * 70}.example"\nsender = "a@x.example"', "smtp.host"),
        ('[smtp]\nhost = "a b"\nsender = "a@x.example"', "smtp.host"),
        ('[smtp]\nhost = "1.2.3"\nsender = "a@x.example"', "smtp.host"),
        ('[smtp]\nhost = "x.example"\nsender = "a\\nb@x.example"', "smtp.sender"),
        ('[smtp]\nhost = "x.example"\nsender = "nobody"', "smtp.sender"),
        ('[smtp]\nhost = "x"\nsender = "a@x.example"\nsecurity = "maybe"', "smtp.security"),
        (
            '[smtp]\nhost = "x.example"\nsender = "a@x.example"\nsecurity = "none"\npassword = "sekret"',
            "smtp.password",
        ),
        ('[smtp]\nhost = "x"\nsender = "a@x.example"\nlist_id = "<x>"', "smtp.list_id"),
        ("[rates.reads]\nburst = 0\nper_minute = 1", "rates.reads.burst"),
        ("[rates.reads]\nburst = 1\nper_minute = 0", "rates.reads.per_minute"),
        ("[rates.reads]\nburst = 1", "rates.reads.per_minute"),
        ("[rates]\nreads = 7", "rates.reads"),
        ("[rates.other]\nburst = 1", "rates.other"),
        ("oidc = 7", "oidc"),
        ('[[oidc]]\nid = "a"', "oidc[0].issuer"),
        ('[[oidc]]\nid = "A B"\nissuer = "https://x.example"\nclient_id = "c"', "oidc[0].id"),
        ('[[oidc]]\nid = "a"\nissuer = "http://x.example"\nclient_id = "c"', "oidc[0].issuer"),
        ('[[oidc]]\nid = "a"\nissuer = "https://x.example?a"\nclient_id = "c"', "oidc[0].issuer"),
        (
            '[[oidc]]\nid = "a"\nissuer = "https://x.example"\nclient_id = "c"\nscopes = ["email"]',
            "oidc[0].scopes",
        ),
        ('[[oidc]]\nid = "a"\nissuer = "https://x.example"\nclient_id = "c"\n' * 2, "oidc"),
        ("x = ", "registry.toml"),
        ("a = " + "[" * 5000, "registry.toml"),
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert named in str(caught.value)
    assert "sekret" not in str(caught.value)
    assert caught.value.code.startswith("config.")


def test_a_file_that_is_missing_long_or_binary_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    codes = []
    for content in (None, b"#" * 300_000, b"\xff"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_settings(path, environ={})
        codes.append(caught.value.code)
    assert codes == ["config.missing", "config.too-long", "config.syntax"]


def test_an_unknown_argument_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={}, prot=1)
    assert (caught.value.code, "prot" in caught.value.message) == ("config.unknown-setting", True)


def test_http_to_this_machine_is_for_trials(tmp_path: Path) -> None:
    text = '[[oidc]]\nid = "a"\nissuer = "http://127.0.0.1:7"\nclient_id = "c"\nnetwork = "local"\n'
    assert load(tmp_path, text).oidc[0].network == "local"


@pytest.mark.parametrize(("given", "read"), [("mail_1.x.example", "mail_1.x.example"), ("[::1]", "::1")])
def test_a_mail_server_is_a_name_or_an_address(given: str, read: str) -> None:
    environ = {"ONYM_REGISTRY_SMTP_HOST": given, "ONYM_REGISTRY_SMTP_SENDER": "r@example.org"}
    found = load_settings(environ=environ)
    assert found.smtp is not None
    assert found.smtp.host == read
