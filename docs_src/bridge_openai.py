import os

import onym.bridges

# LLM_URI=llm://localhost:11434/llama3?api=chat&temp=0
with onym.bridges.openai(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    answer = client.chat.completions.create(
        model="llama3", messages=[{"role": "user", "content": "What is the capital of France?"}]
    )
    print(answer.choices[0].message.content)
