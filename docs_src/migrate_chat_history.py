import os

import onym

history = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "The capital of France?"},
]

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    answer = client.chat(history)
    print(answer.text, answer.usage.input_tokens, answer.usage.output_tokens)
