import json
import os

import onym

WEATHER = onym.Tool(
    name="weather",
    description="The weather of a city today.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)


def weather(city: str) -> str:
    return f"12 degrees in {city}"


with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    turns: list[onym.Message | onym.Completion] = [
        onym.Message(role="user", content="How warm is it in Oslo?")
    ]
    answer = client.chat(turns, tools=[WEATHER])
    turns.append(answer)
    for call in answer.tool_calls:
        result = weather(**json.loads(call.arguments))
        print(call.name, call.arguments, "->", result)
        turns.append(onym.Message(role="tool", tool_call_id=call.id, content=result))
    print(client.chat(turns, tools=[WEATHER]).text)
