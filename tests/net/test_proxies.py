"""`ProxyConfig`: the URL of a proxy, the variables that name it, and the hosts that need none."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import Any

import pytest

from onym.errors import SecretError, UsageError
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.messages import Origin
from onym.net.proxies import ProxyConfig
from onym.net.transport import Transport
from onym.uri.secret import Secret

PASSWORD = "pw-4711-never-shown"


def test_a_url_is_split_into_its_parts(subtests: pytest.Subtests) -> None:
    rows = [
        ("http://proxy.corp:3128", "http", "proxy.corp", 3128),
        ("proxy.corp:3128", "http", "proxy.corp", 3128),
        ("proxy", "http", "proxy", 80),
        ("HTTP://Proxy.Corp/", "http", "proxy.corp", 80),
        ("https://proxy.corp", "https", "proxy.corp", 443),
        ("socks5://10.0.0.1", "socks5", "10.0.0.1", 1080),
        ("socks5h://[2001:db8::1]:1081", "socks5h", "2001:db8::1", 1081),
        ("http://127.0.0.1:8888", "http", "127.0.0.1", 8888),
    ]
    for url, scheme, host, port in rows:
        with subtests.test(url=url):
            proxy = ProxyConfig.parse(url)
            assert (proxy.scheme, proxy.host, proxy.port) == (scheme, host, port)
            assert (proxy.username, proxy.password) == (None, None)
            assert proxy.build_authorization() is None


def test_who_looks_up_names_follows_from_the_scheme_unless_it_is_chosen(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, Any, bool]] = [
        ("http://p", None, True),
        ("https://p", None, True),
        ("socks5h://p", None, True),
        ("socks5://p", None, False),
        ("http://p", "local", False),
        ("socks5h://p", "local", False),
        ("socks5://p", "proxy", True),
    ]
    for url, resolve, resolves in rows:
        with subtests.test(url=url, resolve=resolve):
            proxy = ProxyConfig.parse(url, resolve=resolve)
            assert proxy.resolves_host("api.example") is resolves
            assert not proxy.resolves_host("192.0.2.1")


def test_the_user_name_and_the_password_are_decoded(subtests: pytest.Subtests) -> None:
    rows = [
        ("http://app:pw@p", "app", "pw"),
        ("http://app:p%40w%3A%2F@p", "app", "p@w:/"),
        ("http://app:p@w:/#?@p", "app", "p@w:/#?"),
        ("http://app@p", "app", None),
        ("http://app:@p", "app", ""),
        ("http://:pw@p", "", "pw"),
        ("http://@p", None, None),
        ("http://caf%C3%A9:pw@p", "café", "pw"),
    ]
    for url, username, password in rows:
        with subtests.test(url=url):
            proxy = ProxyConfig.parse(url)
            assert (None if proxy.username is None else proxy.username.reveal()) == username
            assert (None if proxy.password is None else proxy.password.reveal()) == password


def test_basic_authentication_is_that_of_rfc_7617() -> None:
    # the example of RFC 7617, 2
    proxy = ProxyConfig.parse("http://Aladdin:open%20sesame@p")
    assert proxy.build_authorization() == Secret("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
    assert ProxyConfig.parse("http://test@p").build_authorization() == Secret("Basic dGVzdDo=")


def test_an_invalid_proxy_is_refused_without_showing_it(subtests: pytest.Subtests) -> None:
    urls = [
        "",
        "http://",
        f"ftp://app:{PASSWORD}@proxy.corp",
        f"socks4://app:{PASSWORD}@proxy.corp",
        f"http://app:{PASSWORD}@proxy.corp:0",
        f"http://app:{PASSWORD}@proxy.corp:65536",
        f"http://app:{PASSWORD}@proxy.corp:port",
        f"http://app:{PASSWORD}@proxy.corp/path",
        f"http://app:{PASSWORD}@proxy..corp",
        f"http://app:{PASSWORD}@[::1",
        f"http://app:{PASSWORD}@[::1:2:3:4:5:6:7:8:9]",
        f"http://app:{PASSWORD}%zz@proxy.corp",
        f"http://app:{PASSWORD}%ff@proxy.corp",
        f"http://app:{PASSWORD}%00@proxy.corp",
        f"http://a%3Apq:{PASSWORD}@proxy.corp",
        f"http://app:{PASSWORD}{'x' * 4096}@proxy.corp",
        f"socks5://app:{PASSWORD}{'x' * 256}@proxy.corp",
        "socks5://app@proxy.corp",
        f"http://app:{PASSWORD}@2130706433",
    ]
    for url in urls:
        with subtests.test(url=url), pytest.raises(UsageError) as caught:
            ProxyConfig.parse(url, source="ONYM_PROXY")
        assert caught.value.code == "usage.proxy"
        assert_hidden(caught.value)


def assert_hidden(error: BaseException) -> None:
    """No frame of Onym and no text of the error has the password."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame for frame in shown.stack if "/src/onym/" in frame.filename]
    assert ours
    assert PASSWORD not in repr([frame.locals for frame in ours]) + str(error) + repr(error)


@pytest.mark.parametrize(
    "fields",
    [
        {"scheme": "http", "host": "p", "port": True},
        {"scheme": "http", "host": "p", "port": -1},
        {"scheme": "http", "host": "p", "password": Secret("x")},
        {"scheme": "http", "host": "p", "username": "app"},
        {"scheme": "http", "host": "p", "resolve": "both"},
        {"scheme": "http", "host": "p", "no_proxy": "intra.corp"},
        {"scheme": "http", "host": "p", "no_proxy": [1]},
        {"scheme": "http", "host": ""},
        {"scheme": "gopher", "host": "p"},
    ],
)
def test_a_field_that_is_not_possible_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        ProxyConfig(**fields)
    assert caught.value.code == "usage.proxy"


def test_neither_repr_nor_text_nor_pickle_contains_the_login() -> None:
    proxy = ProxyConfig.parse(f"http://app-4712:{PASSWORD}@proxy.corp:3128")
    for text in (repr(proxy), str(proxy), proxy.text, repr(NetConfig(proxy=proxy)), repr(copy.copy(proxy))):
        assert PASSWORD not in text
        assert "app-4712" not in text
    with pytest.raises(SecretError):
        pickle.dumps(proxy)
    assert proxy.text == "http://proxy.corp:3128"
    assert ProxyConfig.parse("socks5://[::1]").text == "socks5://[::1]:1080"


def test_proxies_with_another_password_are_not_equal() -> None:
    one, same, other = (ProxyConfig.parse(f"http://app:{text}@p") for text in ("a", "a", "b"))
    assert (one == same, one == other) == (True, False)
    assert hash(one) == hash(same)


def test_hosts_of_no_proxy_need_no_proxy(subtests: pytest.Subtests) -> None:
    rows = [
        ("intra.corp", "intra.corp", 443, True),
        ("intra.corp", "Api.Intra.Corp.", 443, True),
        ("intra.corp", "xintra.corp", 443, False),
        (".intra.corp", "api.intra.corp", 443, True),
        (".intra.corp", "intra.corp", 443, True),
        ("*.intra.corp", "api.intra.corp", 443, True),
        ("intra.corp:8443", "intra.corp", 8443, True),
        ("intra.corp:8443", "intra.corp", 443, False),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        # only for addresses: the proxy decides what a name means
        ("10.0.0.0/8", "ten.corp", 443, False),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3:443", "10.1.2.3", 443, True),
        ("10.1.2.3:444", "10.1.2.3", 443, False),
        ("2001:db8::/32", "2001:db8::5", 443, True),
        ("2001:db8::5", "2001:db8:0::5", 443, True),
        ("[2001:db8::5]", "2001:db8::5", 443, True),
        ("[2001:db8::5]:443", "2001:db8::5", 443, True),
        ("[2001:db8::5]:443", "2001:db8::6", 443, False),
        ("*", "api.example", 443, True),
    ]
    for rule, host, port, bypassed in rows:
        with subtests.test(rule=rule, host=host):
            assert ProxyConfig.parse("http://p", no_proxy=[rule]).is_bypassed(host, port) is bypassed


def test_this_computer_is_never_reached_through_a_proxy() -> None:
    proxy = ProxyConfig.parse("http://p")
    for host in ("localhost", "app.localhost", "127.0.0.1", "127.9.9.9", "::1"):
        assert proxy.is_bypassed(host, 11434)
    assert not proxy.is_bypassed("api.example", 443)


@pytest.mark.parametrize("rule", ["", "a b", "intra.corp:port", "intra.corp:0", "10.0.0.1/8", "<local>"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        ProxyConfig.parse("http://p", no_proxy=[rule])
    assert caught.value.code == "usage.proxy"


def test_the_variables_name_the_proxy_for_https(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, str], str | None, str | None]] = [
        ({}, None, None),
        ({"HTTPS_PROXY": "http://a:1"}, "http://a:1", "HTTPS_PROXY"),
        ({"https_proxy": "http://a:1"}, "http://a:1", "https_proxy"),
        ({"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:2"}, "http://a:1", "https_proxy"),
        ({"HTTPS_PROXY": "http://a:1", "ALL_PROXY": "http://b:2"}, "http://a:1", "HTTPS_PROXY"),
        ({"all_proxy": "socks5h://b:2", "HTTP_PROXY": "http://c:3"}, "socks5h://b:2", "all_proxy"),
        ({"HTTP_PROXY": "c:3"}, "http://c:3", "HTTP_PROXY"),
        ({"http_proxy": " c:3 "}, "http://c:3", "http_proxy"),
        ({"HTTPS_PROXY": ""}, None, None),
        ({"https_proxy": "", "HTTPS_PROXY": "http://b:2"}, None, None),
        # httpoxy: a CGI server passes the request's header Proxy under this name
        ({"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "http://c:3", "REQUEST_METHOD": "GET"}, "http://c:3", "http_proxy"),
    ]
    for environ, text, source in rows:
        with subtests.test(environ=environ):
            proxy = ProxyConfig.from_environment(environ)
            assert (None if proxy is None else proxy.text) == text
            assert (None if proxy is None else proxy.source) == source


def test_no_proxy_of_the_environment_is_a_list_with_commas_or_spaces() -> None:
    environ = {"HTTPS_PROXY": "http://p", "NO_PROXY": "localhost,.intra.corp 10.0.0.0/8, 169.254/16 ,<local>"}
    proxy = ProxyConfig.from_environment(environ)
    assert proxy is not None
    assert proxy.no_proxy == ("localhost", ".intra.corp", "10.0.0.0/8")
    assert proxy.is_bypassed("api.intra.corp", 443)


def test_an_invalid_variable_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError) as caught:
        ProxyConfig.from_environment({"HTTPS_PROXY": f"http://app:{PASSWORD}@proxy..corp"})
    assert caught.value.code == "usage.proxy"
    assert_hidden(caught.value)
    with pytest.raises(UsageError, match="HTTPS_PROXY"):
        ProxyConfig.from_environment({"HTTPS_PROXY": "http://proxy:port"})


def test_a_text_is_not_a_proxy_of_a_configuration() -> None:
    with pytest.raises(UsageError) as caught:
        Transport(NetConfig(proxy="http://proxy.corp"))  # type: ignore[arg-type]
    assert caught.value.code == "usage.proxy"


def test_the_route_of_an_origin_names_the_proxy_and_the_authorities() -> None:
    tls = TLSConfig(ca_files=("corp.pem",), client_cert="me.pem")
    proxy = ProxyConfig.parse("http://app:pw@proxy.corp", no_proxy=["intra.corp"], source="--proxy")
    config = NetConfig(tls=tls, proxy=proxy)
    route = config.describe_route(Origin("https", "api.example", 443))
    assert (route.proxy, route.proxy_source, route.resolved_by_proxy) == (
        "http://proxy.corp:80",
        "--proxy",
        True,
    )
    assert route.authorities[-1] == "corp.pem"
    assert len(route.authorities) > 1
    assert route.client_cert == "me.pem"
    for origin in (Origin("https", "intra.corp", 443), Origin("http", "localhost", 11434)):
        direct = config.describe_route(origin)
        assert (direct.proxy, direct.proxy_source, direct.resolved_by_proxy) == (None, None, False)
    assert not config.describe_route(Origin("https", "192.0.2.1", 443)).resolved_by_proxy
    assert NetConfig().describe_route(Origin("https", "api.example", 443)).proxy is None


def test_ctrl_c_while_a_url_is_read_leaves_no_frame_with_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(text: str, component: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("onym.net.proxies.decode_component", interrupt)
    url = Secret(f"http://app:{PASSWORD}@proxy.corp")
    with pytest.raises(KeyboardInterrupt) as caught:
        ProxyConfig.parse(url)
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert PASSWORD not in repr(
        [frame.f_locals for frame in frames if "/src/onym/" in frame.f_code.co_filename]
    )
