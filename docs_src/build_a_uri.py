import onym

uri = onym.LLMURI.build(
    provider="ollama",
    model="llama3:8b",
    temp=0.2,
    stop=("END", "a,b"),
    web_search={"max_uses": 3},
)
print(uri)
print(onym.normalize(uri))
print(uri.with_model("mistral").without_params("stop", "web_search"))
