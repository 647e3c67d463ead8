from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.settings import ModelSettings

agent = Agent(
    OpenAIChatModel("gpt-5.4-mini"),
    model_settings=ModelSettings(temperature=0.2, max_tokens=100),
)
print(agent.run_sync("Name three colours.").output)
