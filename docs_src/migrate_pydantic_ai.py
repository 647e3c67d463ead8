import os

from pydantic_ai import Agent

import onym.bridges

# LLM_URI=llm://openai/gpt-5.4-mini?temp=0.2&max_tokens=100
agent = Agent(onym.bridges.OnymModel(os.environ["LLM_URI"], policy=onym.Policy.local()))
print(agent.run_sync("Name three colours.").output)
