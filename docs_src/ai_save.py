from pathlib import Path

from onym.ai import AIClient
from onym.net import NetConfig, Policy, TLSConfig

uri = "ai://factory.localhost:8443/tool/add"
folder = Path("saved")
folder.mkdir()

with AIClient(network=NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))) as client:
    result = client.invoke(uri, {"a": 2, "b": 3})
    (folder / "body").write_bytes(result.body)
    (folder / "receipt.jwt").write_text(result.token)
    (folder / "history.json").write_bytes(client.fetch_key_history(uri))
