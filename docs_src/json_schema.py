import json
import os

import onym

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    answer = client.chat("The capital of France, as JSON.", schema=CITY)
    print(json.loads(answer.text)["city"])
