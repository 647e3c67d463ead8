import csv
import json
from pathlib import Path

with Path("questions.csv").open(newline="") as source, Path("rows.jsonl").open("w") as rows:
    for line in csv.DictReader(source):
        print(json.dumps({"id": line["id"], "prompt": line["question"]}), file=rows)
