import os

import onym

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)

with onym.connect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
    question = onym.Message(
        role="user",
        content=(onym.TextPart("What colour is this?"), onym.ImagePart(data=PIXEL, media_type="image/png")),
    )
    print(client.chat(question).text)
