import os

import onym

# LLM_URI=llm://localhost:11434/llama3?temp=0
with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    answer = client.chat("What is the capital of France?")
    print(answer.text)
    print(answer.finish_reason, answer.usage.total_tokens)
