import os

from langchain_core.tools import tool

import onym.bridges


@tool
def weather(city: str) -> str:
    """The weather of a city today."""
    return f"12 degrees in {city}"


# LLM_URI=llm://localhost:11434/llama3?temp=0
model = onym.bridges.ChatOnym(os.environ["LLM_URI"], policy=onym.Policy.local())
answer = model.bind_tools([weather]).invoke("How warm is it in Oslo?")
print(answer.tool_calls[0]["name"], answer.tool_calls[0]["args"])

for chunk in model.stream("And in Rome?"):
    print(chunk.text, end="")
print()
model.close()
