from onym.ai import Endpoint
from onym.ai.records import Approver
from onym.net import NetConfig, Policy, TLSConfig

POLICY = """
@approval("other") @reason("Payments need a second person.")
permit(principal, action == Action::"financial", resource);
"""
GATEWAY = "https://gw.localhost:8480"
# trials: the gateway is on this computer, and its certificate is trusted. In production, omit `network`
trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",), minimum="1.3"))

app = Endpoint(
    "shop.localhost:8443",
    keys="keys",
    store="payments.sqlite",
    policy=POLICY,
    approvers=[Approver(issuer=GATEWAY, jwks=f"{GATEWAY}/.well-known/jwks.json")],
    network=trial,
)


@app.resource("/pay", effects="financial", title="Pay an invoice")
def pay(amount: int, to: str) -> str:
    return f"paid {amount} to {to}"
