from pathlib import Path

from onym.ai import Endpoint

app = Endpoint("depot.localhost:8444", keys="keys", policy=Path("forklift.cedar"), store="moves.sqlite")
moves: list[str] = []


@app.resource("/agent/forklift-42", effects="physical", title="A forklift")
def move(zone: str, meters: int) -> dict[str, int | str]:
    moves.append(zone)
    return {"zone": zone, "meters": meters, "moves": len(moves)}
