"""From a person who signed in to a token of an authority: which way is taken, what is kept and what is not.

The authorization server here is a script at the wire; `tests/server` has a real one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from onym.ai.credentials import Credential
from onym.ai.gateway.grants import Connection, GrantBroker, GrantServer, Route, Subject
from onym.ai.oauth import Grant
from onym.ai.oauth_metadata import Registration
from onym.ai.records import AnchorDocument, Auth, Effects, Level, Requirements, Resolution
from onym.ai.settings import ResolverSettings
from onym.common.text import encode_base64url
from onym.errors import AIIPError, ConnectionRequired
from onym.net.messages import ConnectionInfo, Headers, Reply, Send, Work
from onym.sign.keys import AuthorityKeys
from onym.testing import FakeClock
from onym.uri.ai import AIURI
from onym.uri.secret import Secret, SecretBytes

AS = "https://as.bank.example"
OP = "https://login.example"
GATEWAY = Registration(issuer=AS, client_id="gateway")
DOCUMENT = AnchorDocument(
    anchor="https://bank.example",
    authority="bank.example",
    service="https://bank.example/.well-known/aiip/v1",
    jwks="https://bank.example/jwks",
    scopes=("pay", "read"),
    requirements=Requirements(auth=Auth.OAUTH2),
    authorization_servers=(AS,),
    resource="https://bank.example/.well-known/aiip/v1",
)
RESOLUTION = Resolution(
    uri=AIURI.parse("ai://bank.example/balance"),
    authority="bank.example",
    document=DOCUMENT,
    keys=AuthorityKeys(),
)
ALICE = Subject(id="session-a", provider=AS, access_token=Secret("token-of-alice"))
BOB = replace(ALICE, id="session-b", access_token=Secret("token-of-bob"))


@dataclass
class Server:
    """An authorization server at the wire: it answers every request for a token, and notes its form."""

    clock: FakeClock
    seconds: int = 300
    status: int = 200
    forms: list[dict[str, str]] = field(default_factory=list)
    #: called before a token is issued
    before: Callable[[], None] = lambda: None

    def answer(self, send: Send) -> Reply:
        request = send.request
        if request.method == "GET":
            found = f"{request.origin.scheme}://{request.origin.host}" == AS
            members = {"issuer": AS, "token_endpoint": f"{AS}/token"}
            return self._reply(200 if found else 404, members)
        assert isinstance(request.body, SecretBytes)
        form = {name: values[0] for name, values in parse_qs(request.body.reveal().decode()).items()}
        self.forms.append(form)
        self.before()
        if self.status != 200:
            return self._reply(self.status, {"error": "temporarily_unavailable"})
        claims = {
            "iss": AS, "aud": form["resource"], "client_id": "gateway", "scope": form.get("scope", ""),
            "sub": form.get("subject_token", "gateway"), "act": {"sub": "gateway"}, "n": len(self.forms),
        }  # fmt: skip
        token = ".".join(encode_base64url(json.dumps(part).encode()) for part in ({"alg": "x"}, claims, 1))
        members = {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds}
        if "subject_token" in form:
            members["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
        if form["grant_type"] == "refresh_token":
            members["refresh_token"] = "rotated"
        return self._reply(200, members)

    def _reply(self, status: int, members: dict[str, Any]) -> Reply:
        headers = Headers((("Content-Type", "application/json"), ("Cache-Control", "no-store")))
        info = ConnectionInfo.__new__(ConnectionInfo)
        return Reply(status, headers, json.dumps(members).encode(), None, info)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> Server:
    return Server(clock)


def make_broker(clock: FakeClock, **row: Any) -> GrantBroker:
    settings = ResolverSettings(clock=clock.time)
    return GrantBroker([GrantServer(registration=GATEWAY, **row)], [], settings)


def drive(flow: Generator[Any, Any, Credential | None], server: Server) -> Credential | None:
    """Run the flow: requests go to the server, other work runs here."""
    received: Any = None
    while True:
        try:
            step = flow.send(received)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        received = server.answer(step) if isinstance(step, Send) else step.call()


def obtain(
    broker: GrantBroker, server: Server, subject: Subject | None = ALICE, *scopes: str, **more: Any
) -> str:
    """Return the token, without its wrapping."""
    resolution, effects = more.pop("resolution", RESOLUTION), more.pop("effects", Effects.READ)
    wanted: Any = {"scopes": scopes, "effects": effects}
    grant = broker.choose_grant(resolution, subject, **wanted)
    credential = drive(broker.obtain(resolution, subject, grant, **wanted), server)
    return "" if credential is None else credential.token.reveal()


def refused(
    broker: GrantBroker, server: Server, subject: Subject | None = ALICE, *scopes: str, **more: Any
) -> Any:
    with pytest.raises(AIIPError) as caught:
        obtain(broker, server, subject, *scopes, **more)
    shown = f"{caught.value} {caught.value.as_dict()}"
    assert "token-of" not in shown
    return caught.value


def test_an_authority_that_asks_nobody_gets_no_token(clock: FakeClock, server: Server) -> None:
    free = replace(RESOLUTION, document=replace(DOCUMENT, requirements=Requirements()))
    broker = make_broker(clock)
    assert obtain(broker, server, resolution=free) == ""
    assert broker.choose_grant(free, ALICE, scopes=(), effects=Effects.READ) is None
    assert server.forms == []


def test_the_person_s_token_is_exchanged_once_and_kept_until_shortly_before_its_end(
    clock: FakeClock, server: Server
) -> None:
    broker = make_broker(clock)
    first = obtain(broker, server, ALICE, "read")
    clock.advance(269)
    assert obtain(broker, server, ALICE, "read") == first
    clock.advance(2)
    assert obtain(broker, server, ALICE, "read") != first
    (form, _) = server.forms
    assert form["subject_token"] == "token-of-alice"
    assert (form["resource"], form["scope"]) == (DOCUMENT.resource, "read")


def test_tokens_of_two_people_sign_ins_and_scopes_are_never_mixed(clock: FakeClock, server: Server) -> None:
    broker = make_broker(clock)
    tokens = [
        obtain(broker, server, ALICE, "read"),
        obtain(broker, server, BOB, "read"),
        obtain(broker, server, ALICE, "read", "pay"),
        obtain(broker, server, replace(ALICE, access_token=Secret("token-after-step-up")), "read"),
        obtain(broker, server, ALICE, "read", resolution=replace(RESOLUTION, authority="bank.example:8443")),
    ]
    assert len(set(tokens)) == len(server.forms) == 5
    assert [form["subject_token"] for form in server.forms][1] == "token-of-bob"


def test_a_server_that_the_operator_does_not_know_gets_nothing(clock: FakeClock, server: Server) -> None:
    foreign = replace(RESOLUTION, document=replace(DOCUMENT, authorization_servers=("https://evil.example",)))
    broker = make_broker(clock)
    error = refused(broker, server, resolution=foreign)
    assert (error.code, error.status) == ("aiip.authorization-unavailable", 403)
    assert broker.find_server("https://evil.example") is None
    assert server.forms == []


def test_a_row_may_be_for_some_authorities_only(clock: FakeClock, server: Server) -> None:
    broker = make_broker(clock, authorities=frozenset({"shop.example"}))
    assert refused(broker, server).code == "aiip.authorization-unavailable"
    assert server.forms == []


@pytest.mark.parametrize(("listed", "allowed"), [(("pay",), None), (("pay", "read"), frozenset({"pay"}))])
def test_a_scope_outside_of_the_document_or_the_operators_limit_is_not_asked_for(
    clock: FakeClock, server: Server, listed: tuple[str, ...], allowed: frozenset[str] | None
) -> None:
    broker = make_broker(clock, scopes=allowed)
    resolution = replace(RESOLUTION, document=replace(DOCUMENT, scopes=listed))
    assert obtain(broker, server, ALICE, "pay", resolution=resolution)
    error = refused(broker, server, ALICE, "pay", "read", resolution=resolution)
    assert error.code == "aiip.authorization-unavailable"
    assert len(server.forms) == 1


def test_a_token_is_shown_only_to_the_server_that_issued_it(clock: FakeClock, server: Server) -> None:
    stranger = replace(ALICE, provider=OP)
    broker = make_broker(clock, connect=False)
    assert refused(broker, server, stranger).code == "aiip.authorization-unavailable"
    assert server.forms == []
    trusting = make_broker(clock, tokens_of=frozenset({OP}))
    chosen = trusting.choose_grant(RESOLUTION, stranger, scopes=(), effects=Effects.READ)
    assert chosen is not None
    assert chosen.route is Route.EXCHANGE
    assert obtain(trusting, server, stranger)


def test_a_failure_of_the_server_is_told_and_no_other_way_is_tried(clock: FakeClock, server: Server) -> None:
    broker = make_broker(clock, service=True)
    server.status = 503
    error = refused(broker, server)
    assert (error.code, error.status, error.retryable) == ("aiip.authorization-unavailable", 503, True)
    assert len(server.forms) == 1
    server.status = 200
    assert obtain(broker, server)


def test_the_gateway_asks_in_its_own_name_only_to_read_and_only_if_it_may(
    clock: FakeClock, server: Server
) -> None:
    allowed = make_broker(clock, service=True, connect=False)
    stranger = replace(ALICE, provider=OP)
    assert obtain(allowed, server, None, "read")
    assert obtain(allowed, server, stranger, "read")  # the same token: it is nobody's
    assert [form["grant_type"] for form in server.forms] == ["client_credentials"]
    for effects in (Effects.WRITE, Effects.FINANCIAL, Effects.PHYSICAL):
        assert refused(allowed, server, stranger, effects=effects).code == "aiip.authorization-unavailable"
        assert refused(allowed, server, None, effects=effects).code == "aiip.sign-in-required"
    assert refused(make_broker(clock), server, None).code == "aiip.sign-in-required"


def connect(grant: Grant, **changes: Any) -> Connection:
    """A connection for the authority of `RESOLUTION`."""
    known = {"issuer": AS, "authority": "bank.example", "resource": DOCUMENT.resource or "", "grant": grant}
    return Connection(**{**known, **changes})


@pytest.mark.parametrize(
    ("authority", "service"),
    [
        ("evil.example", "https://evil.example/.well-known/aiip/v1"),
        # a document that names the bank's service and resource as its own
        ("evil.example", "https://bank.example/.well-known/aiip/v1"),
        # the authority now names another resource
        ("bank.example", "https://bank.example/other"),
    ],
)
def test_a_connection_for_one_authority_is_never_used_at_another(
    clock: FakeClock, server: Server, authority: str, service: str
) -> None:
    grant = Grant(
        token=Secret("token-of-the-bank"),
        scopes=frozenset({"read", "pay"}),
        expires=clock.time() + 99,
        refresh_token=Secret("refresh-token-of-the-bank"),
    )
    person = replace(ALICE, provider=OP, connections=(connect(grant),))
    broker = make_broker(clock)
    assert obtain(broker, server, person, "read") == "token-of-the-bank"
    other = replace(
        RESOLUTION,
        authority=authority,
        document=replace(DOCUMENT, authority=authority, service=service, resource=service),
    )
    wanted: Any = {"scopes": ["read"], "effects": Effects.READ}
    chosen = broker.choose_grant(RESOLUTION, person, **wanted)
    assert isinstance(refused(broker, server, person, "read", resolution=other), ConnectionRequired)
    # also if the route was chosen for the bank, and if the token must be renewed
    for later in (0, 100):
        clock.advance(later)
        with pytest.raises(ConnectionRequired):
            drive(broker.obtain(other, person, chosen, **wanted), server)
    assert server.forms == []
    # a connection of its own is enough
    own = connect(
        replace(grant, token=Secret("its-own"), expires=clock.time() + 99),
        authority=authority,
        resource=service,
    )
    both = replace(person, connections=(*person.connections, own))
    assert obtain(broker, server, both, "read", resolution=other) == "its-own"


def test_a_person_can_connect_and_a_program_cannot(clock: FakeClock, server: Server) -> None:
    person = replace(ALICE, provider=OP)
    broker = make_broker(clock)
    error = refused(broker, server, person, "read")
    assert isinstance(error, ConnectionRequired)
    assert error.issuer == AS
    program = replace(person, is_program=True)
    assert not isinstance(refused(broker, server, program, "read"), ConnectionRequired)
    connected = Grant(
        token=Secret("token-of-connection"), scopes=frozenset({"read"}), expires=clock.time() + 99
    )
    with_connection = replace(person, connections=(connect(connected),))
    assert obtain(broker, server, with_connection, "read") == "token-of-connection"
    more = refused(broker, server, with_connection, "read", "pay")
    assert isinstance(more, ConnectionRequired)
    assert server.forms == []


def test_a_connection_that_ends_is_renewed_and_stored(clock: FakeClock, server: Server) -> None:
    stored: list[Connection] = []
    old = Grant(
        token=Secret("token-of-connection"),
        scopes=frozenset({"read"}),
        expires=clock.time() + 10,
        refresh_token=Secret("first"),
    )
    person = replace(
        ALICE,
        provider=OP,
        connections=(connect(old),),
        save_connection=lambda connection: Work(lambda: stored.append(connection)),
    )
    renewed = obtain(make_broker(clock), server, person, "read")
    (kept,) = stored
    assert kept == connect(kept.grant)
    assert kept.grant.token.reveal() == renewed
    assert kept.grant.refresh_token == Secret("rotated")
    assert server.forms[0]["refresh_token"] == "first"


def test_a_connection_without_a_refresh_token_ends(clock: FakeClock, server: Server) -> None:
    old = Grant(token=Secret("token-of-connection"), scopes=frozenset({"read"}), expires=clock.time())
    person = replace(ALICE, provider=OP, connections=(connect(old),))
    assert isinstance(refused(make_broker(clock), server, person, "read"), ConnectionRequired)


def test_a_sign_in_that_ends_takes_its_tokens_along_also_those_on_their_way(
    clock: FakeClock, server: Server
) -> None:
    broker = make_broker(clock)
    of_bob = obtain(broker, server, BOB)
    obtain(broker, server, ALICE)
    broker.end_subject(ALICE.id)
    assert obtain(broker, server, BOB) == of_bob
    # a token that was requested before the sign-out does not come back
    assert refused(broker, server, ALICE).code == "aiip.sign-in-required"
    server.before = lambda: broker.end_subject("session-c")
    late = replace(ALICE, id="session-c")
    assert refused(broker, server, late).code == "aiip.sign-in-required"
    clock.advance(700)
    broker.end_subject("another")  # drops what is old
    server.before = lambda: None
    before = len(server.forms)
    assert obtain(broker, server, late)
    assert len(server.forms) == before + 1


def test_a_session_that_another_gateway_has_ended_gets_no_token_and_leaves_none(
    clock: FakeClock, server: Server
) -> None:
    broker, live = make_broker(clock), True
    asked: list[bool] = []

    def check() -> bool:
        asked.append(live)
        return live

    person = replace(ALICE, check_live=lambda: Work(check))
    first = obtain(broker, server, person)
    # a kept token needs no look at the store: the request has found the session there
    assert obtain(broker, server, person) == first
    assert asked == [True]
    live = False
    assert refused(broker, server, person, "read").code == "aiip.sign-in-required"
    assert len(server.forms) == 2
    # neither the new token nor the kept one is left
    live = True
    assert obtain(broker, server, person, "read") not in {"", first}
    assert obtain(broker, server, person) != first
    assert len(server.forms) == 4
    # the same for a connection that is renewed
    live = False
    old = Grant(
        token=Secret("token-of-connection"),
        scopes=frozenset({"read"}),
        expires=clock.time() + 10,
        refresh_token=Secret("first"),
    )
    connected = replace(person, provider=OP, connections=(connect(old),))
    assert refused(broker, server, connected, "read").code == "aiip.sign-in-required"


def test_a_token_that_the_resource_refused_is_not_used_again(clock: FakeClock, server: Server) -> None:
    broker = make_broker(clock)
    first = obtain(broker, server)
    broker.forget(Secret(first))
    assert obtain(broker, server) != first


def test_a_token_that_ends_at_once_is_used_and_not_kept(clock: FakeClock, server: Server) -> None:
    server.seconds = 20
    broker = make_broker(clock)
    assert obtain(broker, server) != obtain(broker, server)


def test_every_session_server_and_authority_has_a_key_of_its_own(clock: FakeClock, server: Server) -> None:
    resolution = replace(
        RESOLUTION,
        document=replace(DOCUMENT, requirements=Requirements(auth=Auth.OAUTH2, dpop=Level.SUPPORTED)),
    )
    proofs: list[str] = []

    class Noting(Server):
        def answer(self, send: Send) -> Reply:
            proofs.extend(
                value.reveal() if isinstance(value, Secret) else value
                for name, value in send.request.headers
                if name == "DPoP"
            )
            return super().answer(send)

    noting = Noting(clock)
    broker = make_broker(clock)
    for subject in (ALICE, BOB):
        obtain(broker, noting, subject, "read", resolution=resolution)
    obtain(broker, noting, ALICE, "pay", resolution=resolution)
    heads = [proof.partition(".")[0] for proof in proofs]
    assert heads[0] == heads[2] != heads[1]
