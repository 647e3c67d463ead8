from onym.ai import Endpoint

app = Endpoint("factory.localhost:8443", keys="keys")


@app.resource("/tool/add", title="Add two numbers")
def add(a: int, b: int) -> int:
    return a + b
