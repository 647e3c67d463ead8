import os

import onym

with onym.connect(os.environ["LLM_URI"] + "?cache=true", policy=onym.Policy.local()) as client:
    first = client.chat("The capital of France?")
    second = client.chat("The capital of France?")
    print(first.text, second == first)

    # another parameter is another question
    print(client.chat("The capital of France?", temp=0.5).text)
