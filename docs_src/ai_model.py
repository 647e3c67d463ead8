"""A model of an llm:// URI as an ai:// resource; `onym ai serve ai_model:app` serves it."""

import os

from onym.ai import Endpoint
from onym.ai.endpoint.kinds import model
from onym.server.models import served_by
from onym.sign.keystore import KeyStore

app = Endpoint(os.environ.get("AUTHORITY", "factory.localhost:8443"), keys=KeyStore("keys"))
helper = served_by(os.environ.get("MODEL", "llm://embedded/smollm2-135m-instruct?temp=0&max_tokens=48"))
app.add("/model/helper", model(helper), title="A small model")


@app.resource("/tool/add")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
