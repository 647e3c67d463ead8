import os

from onym.ai import Endpoint
from onym.ai.endpoint import Call
from onym.ai.endpoint.oauth import JWTAuthorization

issuer = os.environ.get("ISSUER", "https://login.bank.localhost")
resource = "https://bank.localhost:8443/.well-known/aiip/v1"
auth = JWTAuthorization(issuer, resource, scopes=["transfer"], dpop="required")
app = Endpoint(
    "bank.localhost:8443",
    keys="keys",
    authorization=auth,
    store="transfers.sqlite",
    policy="permit(principal, action, resource);",
)


@app.resource("/account/transfer", effects="financial", scopes=["transfer"])
def transfer(call: Call, cents: int, to: str) -> dict[str, int | str | None]:
    """The proof of the caller's key covers this very body."""
    return {"client": call.caller.client_id, "cents": cents, "to": to}


@app.resource("/account/limit", scopes=["transfer"], acr_values=["urn:example:mfa"], max_age=300)
def limit() -> int:
    """Only for people who signed in with two factors in the last five minutes."""
    return 100_000
