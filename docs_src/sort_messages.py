import json
import os

import onym

MESSAGES = ["The door of my oven does not close.", "Where is my invoice for October?"]
FORM = {
    "type": "object",
    "properties": {
        "topic": {"enum": ["repair", "billing", "other"]},
        "urgent": {"type": "boolean"},
    },
    "required": ["topic", "urgent"],
    "additionalProperties": False,
}

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    for message in MESSAGES:
        try:
            answer = client.chat(f"Sort this message of a customer: {message}", schema=FORM, timeout=60_000)
        except onym.errors.OnymError as error:
            print("not sorted:", error.code)
        else:
            found = json.loads(answer.text)
            print(f"{found['topic']:8} urgent={found['urgent']}  {message}")
