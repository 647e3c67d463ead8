"""The endpoint of the demonstration: a payment that another person approves, and work that takes a while.

`tools/demo_ai.py` serves it. The variables name its authority and the gateway whose approvals it accepts.
"""

import asyncio
import os

from onym.ai import Endpoint
from onym.ai.endpoint import Task
from onym.ai.records import Approver
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy

POLICY = """
permit(principal, action == Action::"write", resource);
@approval("other") @reason("Payments need a second person.")
permit(principal, action == Action::"financial", resource);
"""
GATEWAY = os.environ["GATEWAY"]
trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("ca.pem",), minimum="1.3"))

app = Endpoint(
    os.environ["AUTHORITY"],
    keys="shop-keys",
    store="shop.sqlite",
    policy=POLICY,
    approvers=[Approver(issuer=GATEWAY, jwks=f"{GATEWAY}/.well-known/jwks.json", acr=(os.environ["ACR"],))],
    network=trial,
)


@app.resource("/pay", effects="financial", title="Pay an invoice")
def pay(amount: int, to: str) -> str:
    """Pay an amount, in euros."""
    return f"paid {amount} euros to {to}"


@app.resource("/sort", title="Sort crates", task=True)
async def sort(crates: int, task: Task) -> dict[str, int]:
    """Sort crates, ten in a second."""
    for crate in range(crates):
        task.raise_if_cancelled()
        await asyncio.sleep(0.1)  # the work on one crate
        task.progress(crate + 1, crates, f"crate {crate + 1}")
    return {"sorted": crates}
