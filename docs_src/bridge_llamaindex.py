import os

from llama_index.core.llms import ChatMessage

import onym.bridges

model = onym.bridges.OnymLLM(os.environ["LLM_URI"], policy=onym.Policy.local())
print(model.complete("What is the capital of France?").text)
print(model.chat([ChatMessage("And of Italy?")]).message.content)
model.close()
