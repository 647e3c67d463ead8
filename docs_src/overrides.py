import os

import onym

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    # stronger than the URI, for this call
    print(client.chat("Hello", temp=0.9, max_tokens=20, timeout=5_000).text)

    try:
        client.chat("Hello", temperature=0.9)
    except onym.errors.UsageError as error:
        print(error)
