import os

import onym.bridges

# LLM_URI=llm://openai/gpt-5.4-mini?temp=0.2&max_tokens=100
model = onym.bridges.ChatOnym(os.environ["LLM_URI"], policy=onym.Policy.local())
print(model.invoke("Name three colours.").text)
model.close()
