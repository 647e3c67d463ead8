import os

import onym

client = onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local())

with client.stream("Write one sentence about the sea.") as stream:
    for piece in stream.text:
        print(piece, end="|")
    print()
    print(stream.completion().usage)
client.close()
