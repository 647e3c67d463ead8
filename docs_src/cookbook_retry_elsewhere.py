import os

import onym
from onym import errors

URIS = [os.environ["LLM_URI"], os.environ["LLM_URI"] + "?temp=0"]


def chat_with_first(uris: list[str], prompt: str) -> onym.Completion:
    """Return the answer of the first endpoint that gives one."""
    for number, uri in enumerate(uris, 1):
        try:
            with onym.connect(uri, policy=onym.Policy.local()) as client:
                return client.chat(prompt, retries=0)
        except (errors.RateLimitError, errors.OverloadedError, errors.ServerError, errors.NetError) as error:
            print("endpoint", number, "failed:", error.code)
            if number == len(uris):
                raise
    raise ValueError("no URI was given")


print(chat_with_first(URIS, "Name a colour.").text)
