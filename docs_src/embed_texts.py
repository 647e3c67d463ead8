import os

import onym

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    found = client.embed(["the sea", "the ocean"])
    print(len(found.vectors), "vectors of", len(found.vectors[0]), "numbers")
