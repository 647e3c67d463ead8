from openai import OpenAI

client = OpenAI(timeout=30, max_retries=2)
answer = client.chat.completions.create(
    model="gpt-5.4-mini",
    messages=[{"role": "user", "content": "Name three colours."}],
    max_completion_tokens=100,
)
print(answer.choices[0].message.content)
client.close()
