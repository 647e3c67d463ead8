import onym

uri = onym.parse(
    "llm://my-app:sk-made-up@api.openai.com/gpt-5.5"
    "?temp=0.7&stop=END&web_search.max_uses=3&web_search.enabled=true#code-review"
)

print(uri)  # the key is masked, here and everywhere
print(uri.label, uri.key, uri.host, uri.effective_port, uri.model)
print(uri.temp, uri.stop, uri.fragment)
print(uri.extra)  # parameters that the draft does not define
