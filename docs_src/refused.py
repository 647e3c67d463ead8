import onym

try:
    onym.parse("llm://my-app:sk-made-up@api.openai.com/gpt-5.5?temp=hot")
except onym.errors.ParameterError as error:
    print(error.code)
    print(error.parameter, error.offset, error.clause)
    print(error)
