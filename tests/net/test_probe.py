"""What a probe finds, step by step, and where it stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from net_support import NAMED, OK, Authority, Face, FixedResolver, Server, answering, free_port
from onym.errors import ConnectionFailed, PolicyError, TLSError
from onym.net.messages import Origin
from onym.net.policy import Policy
from onym.net.transport import _get_common_name

MakeFace = Callable[..., Face]


def test_every_step_is_told(make_face: MakeFace, authority: Authority, tmp_path: Path) -> None:
    context = authority.server("pub.example", common_name="Pub", organization_name="Ex")
    resolver = FixedResolver({"pub.example": [["127.0.0.2", "127.0.0.1"]]})
    with Server(answering(OK), tls=context) as server:
        face = make_face(NAMED, resolver=resolver, tls=authority.trust(tmp_path))
        report = face.probe(Origin("https", "pub.example", server.port))
    assert report.error is None
    assert report.answers == ("127.0.0.2", "127.0.0.1")
    assert report.address == "127.0.0.1"
    assert (report.tls_version, report.subject, report.names) == ("1.3", "Pub", ("pub.example",))
    assert report.cipher is not None
    assert report.cipher.startswith("TLS_")
    assert report.issuer is not None
    assert report.not_after is not None
    times = (report.lookup_seconds, report.connect_seconds, report.tls_seconds)
    assert all(seconds is not None and seconds >= 0 for seconds in times)
    assert not server.requests


def test_over_plain_http_there_is_no_certificate(face: Face) -> None:
    with Server(answering(OK)) as server:
        report = face.probe(Origin("http", "localhost", server.port), None)
    assert (report.error, report.tls_version, report.subject) == (None, None, None)
    assert (report.answers, report.lookup_seconds) == (("127.0.0.1", "::1"), None)


def test_a_refusal_stops_it_before_anything_is_connected(make_face: MakeFace) -> None:
    with Server(answering(OK)) as server:
        report = make_face(Policy.trusted()).probe(Origin("http", "localhost", server.port))
        assert server.connections == 0
    assert isinstance(report.error, PolicyError)
    assert (report.address, report.connect_seconds) == (None, None)


def test_an_answer_that_is_refused_is_shown(make_face: MakeFace) -> None:
    face = make_face(Policy.trusted(), resolver=FixedResolver({"pub.example": [["10.0.0.1"]]}))
    report = face.probe(Origin("https", "pub.example", 443))
    assert isinstance(report.error, PolicyError)
    assert report.answers == ("10.0.0.1",)


def test_a_failed_connection_is_told_with_its_endpoint(face: Face) -> None:
    with free_port() as port:
        origin = Origin("http", "127.0.0.1", port)
        report = face.probe(origin)
    assert isinstance(report.error, ConnectionFailed)
    assert report.error.endpoint == str(origin)


def test_a_certificate_that_is_not_trusted_is_told_after_the_connection(
    make_face: MakeFace, authority: Authority
) -> None:
    with Server(answering(OK), tls=authority.server("pub.example")) as server:
        face = make_face(NAMED, resolver=FixedResolver({"pub.example": [["127.0.0.1"]]}))
        report = face.probe(Origin("https", "pub.example", server.port))
    assert isinstance(report.error, TLSError)
    assert (report.address, report.tls_version) == ("127.0.0.1", None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (((("countryName", "XX"),), (("commonName", "a"),)), "a"),
        (((("organizationName", "b"),),), "b"),
        (((("organizationalUnitName", "c"),),), "c"),
        (((("countryName", "XX"),),), None),
        ((), None),
        (None, None),
    ],
)
def test_a_distinguished_name_is_told_by_its_most_telling_part(name: object, expected: str | None) -> None:
    assert _get_common_name(name) == expected
