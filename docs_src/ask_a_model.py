import os

import onym

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    print(client.chat("What is the capital of France?").text)
