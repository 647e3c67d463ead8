import os

import onym
import onym.bridges

# LLM_URI=llm://localhost:11434/llama3?api=chat&temp=0
uri = onym.LLMURI.parse(os.environ["LLM_URI"])
with onym.bridges.openai(uri, policy=onym.Policy.local()) as client:
    answer = client.chat.completions.create(
        model=uri.model, messages=[{"role": "user", "content": "What is the capital of France?"}]
    )
    print(answer.choices[0].message.content)
