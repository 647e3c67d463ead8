import os
from typing import Any

from onym.ai import AIClient
from onym.ai.credentials import ClientCredentials
from onym.ai.oauth_metadata import Registration
from onym.net.limits import ClientIdentity
from onym.uri.secret import Secret

issuer = os.environ.get("ISSUER", "https://login.bank.localhost")
secret = Secret(os.environ.get("SHOP_SECRET", "the secret of the shop"))
shop = Registration(issuer=issuer, client_id="shop", secret=secret)

# a client that has a certificate instead of a secret
identity = ClientIdentity(cert="client.pem")
certified = Registration(
    issuer=issuer, client_id="certified", method="self_signed_tls_client_auth", identity=identity
)


def call_with_proof(uri: str, arguments: dict[str, Any]) -> Any:
    """The client makes a DPoP key, gets a token for it, and proves the key with every request."""
    with AIClient(credentials=ClientCredentials([shop]), allow_effects=["read", "financial"]) as client:
        return client.invoke(uri, arguments).json()


def call_with_certificate(uri: str, arguments: dict[str, Any]) -> Any:
    """The token is bound to the certificate, which the client shows to the bank as well."""
    with AIClient(credentials=ClientCredentials([certified]), identity=identity) as client:
        return client.invoke(uri, arguments).json()
