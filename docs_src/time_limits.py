import os

import onym

# LLM_URI=llm://localhost:11434/llama3?timeout=20000&retries=3
uri = onym.parse(os.environ["LLM_URI"]).with_params(timeout=20_000, retries=3)
with onym.connect(uri, policy=onym.Policy.local()) as client:
    plan = client.explain("Hello")
    print(plan.timeout, "seconds,", plan.retries, "retries")
    plan = client.explain("Hello", timeout=5_000, retries=0)
    print(plan.timeout, "seconds,", plan.retries, "retries")
