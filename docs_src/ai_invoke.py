from onym.ai import AIClient
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import Transport

# trials: this machine is allowed, and the trial certificate trusted. For real names AIClient() is enough
trial = Transport(NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",), minimum="1.3")))

with trial, AIClient(transport=trial) as client:
    result = client.invoke("ai://factory.localhost:8443/tool/add", {"a": 2, "b": 3})
    print(result.json(), "signed by", result.receipt.issuer)
    print(client.describe("ai://factory.localhost:8443/tool/add").title)
