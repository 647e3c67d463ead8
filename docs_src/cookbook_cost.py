import os

import onym
from onym.llm.prices import cost

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    usage = client.chat("Name a colour.").usage

price = cost(usage, "openai", "gpt-5.4-mini")
print(usage.input_tokens, "tokens in,", usage.output_tokens, "out")
if price is not None:
    print(f"{price.amount:.6f} {price.currency}")
