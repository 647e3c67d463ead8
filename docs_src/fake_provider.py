import onym
from onym.testing.fake_provider import FakeProvider

with FakeProvider() as fake:
    fake.answer("Paris.")
    with onym.connect(fake.uri("some-model", "temp=0"), policy=onym.Policy.local()) as client:
        print(client.chat("The capital of France?").text)
    print(fake.requests[0].json)
