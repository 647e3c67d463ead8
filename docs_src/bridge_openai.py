import os

import onym.bridges

with onym.bridges.openai(os.environ["LLM_URI"] + "?temp=0", policy=onym.Policy.local()) as client:
    answer = client.chat.completions.create(
        model="llama3", messages=[{"role": "user", "content": "What is the capital of France?"}]
    )
    print(answer.choices[0].message.content)
