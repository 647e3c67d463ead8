import time
from pathlib import Path

from onym.errors import ProvenanceError
from onym.sign import read_authority_keys, verify_filed

keys = read_authority_keys(Path("history.json").read_bytes(), history=True)
token = Path("result/receipt.jwt").read_text().strip()
body = Path("result/body").read_bytes()

receipt = verify_filed(token, keys, body=body, issuer="https://factory.localhost:8443", at=time.time())
print(receipt.subject, receipt.status, body)
try:
    verify_filed(token, keys, body=b"6")
except ProvenanceError as error:
    print(error.code, error.clause)
