"""What the vendors' own SDKs get from a peer: the answer that Onym's has to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anthropic
import ollama
import openai
from google import genai
from google.genai import types

from e2e.peers import Peer
from onym.llm.types import FinishReason

__all__ = ["Call", "Said", "said", "streamed"]

_REASONS: Mapping[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "completed": "stop",
    "incomplete": "length",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "STOP": "stop",
    "MAX_TOKENS": "length",
}


@dataclass(frozen=True)
class Said:
    """One answer; `input_tokens` counts cached ones."""

    text: str
    reason: FinishReason
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True)
class Call:
    """What is asked: one question below a system message, at temperature 0."""

    model: str
    system: str
    question: str
    max_tokens: int


def said(api: str, peer: Peer, call: Call) -> Said:
    """A full answer, as the SDK for this wire format reads it."""
    full, _ = _SDKS[api]
    return full(peer, call)


def streamed(api: str, peer: Peer, call: Call) -> list[str]:
    """The pieces of a streamed answer that hold text."""
    _, pieces = _SDKS[api]
    return [piece for piece in pieces(peer, call) if piece]


# OpenAI ----------------------------------------------------------------------------------------------


def _openai(peer: Peer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{peer.address}/v1", api_key=peer.key, max_retries=0)


def _chat_arguments(call: Call) -> dict[str, Any]:
    messages = [{"role": "system", "content": call.system}, {"role": "user", "content": call.question}]
    return {"model": call.model, "messages": messages, "temperature": 0, "max_tokens": call.max_tokens}


def _chat(peer: Peer, call: Call) -> Said:
    with _openai(peer) as client:
        answer = client.chat.completions.create(**_chat_arguments(call))
    choice, usage = answer.choices[0], answer.usage
    return Said(
        choice.message.content, _REASONS[choice.finish_reason], usage.prompt_tokens, usage.completion_tokens
    )


def _chat_pieces(peer: Peer, call: Call) -> list[str | None]:
    with _openai(peer) as client:
        chunks = client.chat.completions.create(**_chat_arguments(call), stream=True)
        return [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]


def _responses_arguments(call: Call) -> dict[str, Any]:
    return {
        "model": call.model,
        "instructions": call.system,
        "input": [{"type": "message", "role": "user", "content": call.question}],
        "temperature": 0,
        "max_output_tokens": call.max_tokens,
        "store": False,
    }


def _responses(peer: Peer, call: Call) -> Said:
    with _openai(peer) as client:
        answer = client.responses.create(**_responses_arguments(call))
    usage = answer.usage
    return Said(answer.output_text, _REASONS[answer.status], usage.input_tokens, usage.output_tokens)


def _responses_pieces(peer: Peer, call: Call) -> list[str | None]:
    with _openai(peer) as client:
        events = client.responses.create(**_responses_arguments(call), stream=True)
        return [event.delta for event in events if event.type == "response.output_text.delta"]


# Anthropic -------------------------------------------------------------------------------------------


def _anthropic(peer: Peer) -> anthropic.Anthropic:
    # these servers take the bearer too, which is what a URI for an unnamed host sends
    return anthropic.Anthropic(base_url=peer.address, auth_token=peer.key, api_key=None, max_retries=0)


def _messages_arguments(call: Call) -> dict[str, Any]:
    return {
        "model": call.model,
        "system": call.system,
        "messages": [{"role": "user", "content": call.question}],
        "max_tokens": call.max_tokens,
        # the SDK has dropped it from its arguments, these servers take it
        "extra_body": {"temperature": 0},
    }


def _messages(peer: Peer, call: Call) -> Said:
    with _anthropic(peer) as client:
        answer = client.messages.create(**_messages_arguments(call))
    usage = answer.usage
    counted = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    text = "".join(block.text for block in answer.content if block.type == "text")
    return Said(text, _REASONS[answer.stop_reason], sum(count or 0 for count in counted), usage.output_tokens)


def _messages_pieces(peer: Peer, call: Call) -> list[str | None]:
    with _anthropic(peer) as client, client.messages.stream(**_messages_arguments(call)) as stream:
        return list(stream.text_stream)


# Google ----------------------------------------------------------------------------------------------


def _google(peer: Peer) -> genai.Client:
    options = types.HttpOptions(base_url=peer.address, api_version="v1beta")
    return genai.Client(api_key=peer.key, http_options=options)


def _gemini_arguments(call: Call) -> dict[str, Any]:
    config = types.GenerateContentConfig(
        system_instruction=call.system, temperature=0, max_output_tokens=call.max_tokens
    )
    return {"model": call.model, "contents": call.question, "config": config}


def _gemini(peer: Peer, call: Call) -> Said:
    with _google(peer) as client:
        answer = client.models.generate_content(**_gemini_arguments(call))
    usage = answer.usage_metadata
    reason = _REASONS[answer.candidates[0].finish_reason.value]
    return Said(answer.text, reason, usage.prompt_token_count, usage.candidates_token_count)


def _gemini_pieces(peer: Peer, call: Call) -> list[str | None]:
    with _google(peer) as client:
        return [chunk.text for chunk in client.models.generate_content_stream(**_gemini_arguments(call))]


# Ollama ----------------------------------------------------------------------------------------------


def _ollama_arguments(call: Call) -> dict[str, Any]:
    messages = [{"role": "system", "content": call.system}, {"role": "user", "content": call.question}]
    options = {"temperature": 0, "num_predict": call.max_tokens}
    return {"model": call.model, "messages": messages, "options": options}


def _ollama(peer: Peer, call: Call) -> Said:
    with ollama.Client(host=peer.address) as client:
        answer = client.chat(**_ollama_arguments(call))
    reason = _REASONS[answer.done_reason]
    return Said(answer.message.content, reason, answer.prompt_eval_count, answer.eval_count)


def _ollama_pieces(peer: Peer, call: Call) -> list[str | None]:
    with ollama.Client(host=peer.address) as client:
        return [chunk.message.content for chunk in client.chat(**_ollama_arguments(call), stream=True)]


_SDKS: Mapping[str, tuple[Callable[[Peer, Call], Said], Callable[[Peer, Call], list[str | None]]]] = {
    "chat": (_chat, _chat_pieces),
    "responses": (_responses, _responses_pieces),
    "messages": (_messages, _messages_pieces),
    "gemini": (_gemini, _gemini_pieces),
    "ollama": (_ollama, _ollama_pieces),
}
