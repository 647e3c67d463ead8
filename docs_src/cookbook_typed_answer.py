import os

from pydantic import BaseModel

import onym


class City(BaseModel):
    """A city and its country."""

    name: str
    country: str


with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    answer = client.chat("The capital of France.", schema=City.model_json_schema())
    print(City.model_validate_json(answer.text))
