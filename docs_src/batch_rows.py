import json
import os
from pathlib import Path

import onym
from onym.llm.batch import run

rows = [
    {"id": "fr", "prompt": "The capital of France?"},
    {"id": "it", "prompt": "The capital of Italy?", "params": {"temp": 0}},
]
source, output = Path("requests.jsonl"), Path("results.jsonl")
source.write_text("".join(json.dumps(row) + "\n" for row in rows))

report = run(os.environ["LLM_URI"], source, output, policy=onym.Policy.local())
print(report.answered, "of", report.rows, "answered")

for line in output.read_text().splitlines():
    result = json.loads(line)
    print(result["id"], result["status"], result["text"])

# nothing is left to do: nothing is sent
print(run(os.environ["LLM_URI"], source, output, policy=onym.Policy.local()).before, "were there")
