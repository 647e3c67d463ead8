"""The proxy and the certificates of a client: the argument, `ONYM_PROXY`, and the table `[network]`."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

import onym
from net_support import Authority
from onym.errors import ConfigError
from onym.llm.client import choose_network
from onym.llm.config import Config
from onym.net.config import NetConfig
from onym.net.limits import NetLimits, TLSConfig
from onym.net.policy import Policy
from onym.net.proxies import ProxyConfig
from onym.uri.secret import Secret

PASSWORD = "hunter2-hunter2"
TRUSTED = Policy.trusted()
TABLE = f"""
[network]
proxy = "http://ann:{PASSWORD}@proxy.corp.example:3128"
no_proxy = ["intra.corp.example", "10.0.0.0/8"]
ca_files = ["ca.pem", "/etc/other.pem"]
client_cert = "~/me.pem"
client_key = "me-key.pem"
tls_loopback = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def load(folder: Path, text: str = TABLE) -> Config:
    return Config.load(write(folder, text))


def test_the_table_names_the_proxy_and_the_certificates(tmp_path: Path) -> None:
    network = choose_network(None, TRUSTED, {}, load(tmp_path).network)
    assert network.proxy is not None
    assert network.proxy.text == "http://proxy.corp.example:3128"
    assert network.proxy.password == Secret(PASSWORD)
    assert network.proxy.is_bypassed("api.intra.corp.example", 443)
    assert network.proxy.is_bypassed("10.1.2.3", 443)
    assert not network.proxy.is_bypassed("api.openai.com", 443)
    assert network.tls == TLSConfig(
        # relative to the folder of the configuration, wherever Onym is called
        ca_files=(str(tmp_path / "ca.pem"), "/etc/other.pem"),
        client_cert=str(Path("~/me.pem").expanduser()),
        client_key=str(tmp_path / "me-key.pem"),
        loopback=True,
    )


def test_connect_uses_the_table(tmp_path: Path) -> None:
    with onym.connect("llm://localhost:8443/m", policy=Policy.local(), config=load(tmp_path)) as client:
        assert client.explain().url.startswith("https://localhost:8443/")


def test_without_a_table_nothing_of_the_environment_is_read() -> None:
    environ = {"HTTPS_PROXY": "http://proxy.example", "ALL_PROXY": "http://proxy.example"}
    assert choose_network(None, TRUSTED, environ, Config.empty().network) == NetConfig(policy=TRUSTED)


def test_environment_in_the_table_means_the_usual_variables(tmp_path: Path) -> None:
    settings = load(tmp_path, '[network]\nproxy = "environment"\nno_proxy = ["a.example"]\n').network
    environ = {"HTTPS_PROXY": "http://proxy.example", "NO_PROXY": "b.example"}
    proxy = choose_network(None, TRUSTED, environ, settings).proxy
    assert proxy is not None
    assert (proxy.source, proxy.no_proxy) == ("HTTPS_PROXY", ("b.example", "a.example"))
    assert choose_network(None, TRUSTED, {}, settings).proxy is None


def test_the_argument_is_stronger_than_the_variable_and_that_than_the_table(tmp_path: Path) -> None:
    settings = load(tmp_path).network
    environ = {"ONYM_PROXY": "http://variable.example"}
    argument = NetConfig(proxy=ProxyConfig.parse("http://argument.example"), tls=TLSConfig(minimum="1.3"))
    chosen = choose_network(argument, TRUSTED, environ, settings)
    assert chosen == argument
    by_variable = choose_network(None, TRUSTED, environ, settings).proxy
    assert by_variable is not None
    assert by_variable.source == "ONYM_PROXY"
    assert choose_network(None, TRUSTED, {"ONYM_PROXY": "none"}, settings).proxy is None


def test_an_argument_without_proxy_and_certificates_leaves_those_of_the_table(tmp_path: Path) -> None:
    settings = load(tmp_path).network
    chosen = choose_network(NetConfig(limits=NetLimits(connect=1)), TRUSTED, {}, settings)
    assert chosen.limits.connect == 1
    assert chosen.tls == settings.tls
    assert chosen.proxy is not None


@pytest.mark.parametrize(
    ("line", "place", "text"),
    [
        ("proxy = 3", "2: network.proxy", "text in quotes"),
        ("proxi = 'x'", "2: network.proxi", "unknown key"),
        (f"proxy = 'ftp://ann:{PASSWORD}@x'", "2: network.proxy", "not supported"),
        (f"proxy = 'http://ann:{PASSWORD}@x:99999'", "2: network.proxy", "not valid"),
        ("no_proxy = 'a.example'", "2: network.no_proxy", "a list of texts"),
        ("no_proxy = [1]", "2: network.no_proxy", "a list of texts"),
        ("no_proxy = ['//']", "2: network.no_proxy", "not a host"),
        ("ca_files = 'x'", "2: network.ca_files", "a list of texts"),
        ("client_key = 'x'", "2: network.client_key", "needs client_cert"),
    ],
)
def test_a_wrong_table_is_named_with_the_place_and_without_the_password(
    tmp_path: Path, line: str, place: str, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[network]\n{line}\n")
    assert caught.value.code == "config.invalid"
    assert f"config.toml:{place}: " in caught.value.message
    assert text in caught.value.message
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    assert not [
        frame.name for frame in frames if "/src/onym/" in frame.filename and PASSWORD in str(frame.locals)
    ]


def test_a_value_of_the_wrong_type_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "[network]\ntls_loopback = 'yes'\n")
    assert "true or false" in caught.value.message


def test_the_password_stays_out_of_repr(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert PASSWORD not in repr(config) + repr(choose_network(None, TRUSTED, {}, config.network))


def test_check_tells_files_that_cannot_be_used_and_a_password_that_others_can_read(tmp_path: Path) -> None:
    config = load(tmp_path)
    (finding,) = config.check()
    assert (finding.severity, finding.where) == ("error", "network")
    authority = Authority()
    authority.ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    path = write(tmp_path, f'[network]\nproxy = "http://ann:{PASSWORD}@x"\nca_files = ["ca.pem"]\n')
    assert Config.load(path).check() == ()
    path.chmod(0o644)
    (finding,) = Config.load(path).check()
    assert (finding.severity, finding.where) == ("warning", str(path))
