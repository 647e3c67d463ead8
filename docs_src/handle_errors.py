import os

import onym
from onym import errors

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    try:
        client.chat("Hello", retries=0)
    except errors.RateLimitError as error:
        print("wait", error.retry_after, "seconds;", error.request_id)
    except errors.ProviderError as error:
        print(error.status, error.code)
    except errors.NetError as error:
        print("no answer:", error.code)
