from onym.ai import AIClient
from onym.net import NetConfig, Policy, TLSConfig

trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))

with AIClient(network=trial) as client:
    task = client.start("ai://factory.localhost:8443/agent/sort", {"crates": 3})
    for event in task.events():
        if event.type == "state":
            print(event.seq, event.data["state"])
            break
    result = task.result(timeout=60)
    print(result.json(), "proved for this task:", result.receipt.task == task.id)
