"""llama.cpp's own server as a program: `llama_server.py GGUF MODEL KEY` prints its address.

It serves embeddings and tools too, and leaves when its standard input ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import xllamacpp

TEMPLATE = Path(__file__).with_name("tools.jinja")


def main(gguf: str, model: str, key: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.model_alias = {model}
    params.api_keys = [key]
    params.chat_template = TEMPLATE.read_text()
    params.n_parallel = 2
    params.n_ctx = 8192
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = 1
    params.warmup = False
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
