"""Coverage-guided fuzzing of the llm URI reader: `python fuzz/fuzz_llm_uri.py [CORPUS] [-runs=N]`.

Needs `atheris`. Holds what the hypothesis tests hold: no exception but Onym's own, what is written reads
back equal, normalising is idempotent, and no text shows the key.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["onym"]):
    from onym.errors import URIError
    from onym.uri.llm import LLMURI, check
    from onym.uri.parameters import DEFAULT_LIMITS

#: writing can lengthen a text, as triplets are longer than what they stand for
LONG = DEFAULT_LIMITS.replace(uri=100_000)


def test_one_input(data: bytes) -> None:
    """Read one text in every way."""
    provider = atheris.FuzzedDataProvider(data)
    text = provider.ConsumeUnicode(sys.maxsize)
    for candidate in (text, f"llm://h/{text}", f"llm://h/m?{text}", f"llm://{text}/m"):
        exercise(candidate)


def exercise(text: str) -> None:
    """Raise AssertionError, or anything that is not of Onym, for a text that breaks a promise."""
    report = check(text)
    report.as_dict()
    try:
        uri = LLMURI.parse(text)
    except URIError as error:
        if error.offset is None or not error.clause or report.uri is not None:
            raise AssertionError("a refusal without place or rule") from error
        return
    if LLMURI.parse(uri.render(reveal=True), limits=LONG) != uri:
        raise AssertionError("what is written reads back as something else")
    normal = uri.normalize()
    if normal.normalize() != normal:
        raise AssertionError("normalising is not idempotent")
    key = None if uri.key is None else uri.key.reveal()
    if key and len(key) > 8 and key in str(uri) and key not in uri.without_key().render(reveal=True):
        raise AssertionError("the key is shown")


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
