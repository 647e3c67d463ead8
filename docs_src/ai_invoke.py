from onym.ai import AIClient
from onym.net import NetConfig, Policy, TLSConfig

# for trials: the name is on this computer, its certificate in cert.pem. For a real name, AIClient() is enough
trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))

with AIClient(network=trial) as client:
    result = client.invoke("ai://factory.localhost:8443/tool/add", {"a": 2, "b": 3})
    print(result.json(), "signed by", result.receipt.issuer)
    print(client.describe("ai://factory.localhost:8443/tool/add").title)
