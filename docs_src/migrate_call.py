import os

import onym

# LLM_URI=llm://openai/gpt-5.4-mini?max_tokens=100&timeout=30000&retries=2
with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    answer = client.chat("Name three colours.")
    print(answer.text)
