from onym.ai import AIClient
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import Transport

trial = Transport(NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",), minimum="1.3")))
question = {"prompt": "Write one sentence about the sea."}

with trial, AIClient(transport=trial) as client:
    with client.stream("ai://factory.localhost:8443/model/helper", question) as stream:
        for event in stream:
            print(event.event, event.data)
    print("proved by", stream.result.receipt.issuer, "for", stream.result.receipt.audience)
