import json
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

body = Path("result/body").read_bytes().replace(b"1590", b"90")
header, payload, signature = Path("result/receipt.jwt").read_text().strip().split(".")

claims = json.loads(urlsafe_b64decode(payload + "=="))
claims["res"]["cd"] = f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"
claims["res"]["len"] = len(body)
payload = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

Path("forged-body").write_bytes(body)
Path("forged.jwt").write_text(f"{header}.{payload}.{signature}")
