import os
from pathlib import Path

import onym
from onym.llm.cache import CacheSettings, ResponseCache

settings = CacheSettings(folder=Path("answers"), size=64 * 2**20, age=3600)
cache = ResponseCache(settings)
with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local(), cache=cache) as client:
    client.chat("Hello", cache=True)
print(cache.contents().entries, "answer")
cache.clear()
cache.close()
