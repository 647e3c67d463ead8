import onym
from onym.testing.fake_provider import FakeProvider


def summarise(client: onym.Client, text: str) -> str:
    """The function of your application."""
    return client.chat(f"Summarise in one sentence:\n{text}").text


with FakeProvider() as fake:
    fake.answer("A fox jumps over a dog.")
    with onym.connect(fake.uri("any-model"), policy=onym.Policy.local()) as client:
        assert summarise(client, "The quick brown fox …") == "A fox jumps over a dog."
    print(fake.requests[0].json["messages"][0]["content"])
