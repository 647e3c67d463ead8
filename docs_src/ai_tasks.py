from onym.ai import AIClient
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import Transport

trial = Transport(NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",), minimum="1.3")))

with trial, AIClient(transport=trial) as client:
    task = client.start("ai://factory.localhost:8443/agent/sort", {"crates": 3})
    for event in task.events():
        if event.type == "state":
            print(event.seq, event.data["state"])
            break
    result = task.result(timeout=60)
    print(result.json(), "proved for this task:", result.receipt.task == task.id)
