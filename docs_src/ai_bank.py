import os

from onym.ai import Endpoint
from onym.ai.endpoint import Call
from onym.ai.endpoint.oauth import JWTAuthorization

issuer = os.environ.get("ISSUER", "https://login.bank.localhost")
auth = JWTAuthorization(issuer, "https://bank.localhost:8443/.well-known/aiip/v1", scopes=["balance:read"])
app = Endpoint("bank.localhost:8443", keys="keys", authorization=auth)


@app.resource("/account/balance", scopes=["balance:read"])
def balance(call: Call) -> dict[str, int | str]:
    """The balance of the account that the token names."""
    return {"owner": call.caller.subject or "anonymous", "cents": 1250}
