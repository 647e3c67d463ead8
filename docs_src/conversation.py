import os

import onym

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    turns: list[onym.Message | onym.Completion] = [
        onym.Message(role="system", content="Answer in one word."),
        onym.Message(role="user", content="The capital of France?"),
    ]
    first = client.chat(turns)
    turns += [first, onym.Message(role="user", content="And of Italy?")]
    print(first.text, client.chat(turns).text)
