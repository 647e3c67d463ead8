from onym.ai import AIClient
from onym.net import NetConfig, Policy, TLSConfig

trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))
question = {"prompt": "Write one sentence about the sea."}

with AIClient(network=trial) as client:
    with client.stream("ai://factory.localhost:8443/model/helper", question) as stream:
        for event in stream:
            print(event.event, event.data)
    print("proved by", stream.result.receipt.issuer, "for", stream.result.receipt.audience)
