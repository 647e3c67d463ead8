"""Model profiles: which parameters and tool choices a family of models accepts, as data.

`find_profile` returns the first that matches, so the order matters. IDs at Amazon Bedrock may start with a
geography (`us.`, `global.`) and be part of an ARN; if it hides the model, `bedrock-other` applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

#: what a call may ask for: a choice that is neither of these names a tool
_GENERAL_CHOICES = frozenset({"auto", "none", "required"})

#: never, only on request, unless switched off, and without a way to switch it off
Reasoning: TypeAlias = Literal["never", "opt-in", "default", "always"]
#: what OpenAI's chat completions offer for a model: all, no tools while it reasons, or nothing
ChatSupport: TypeAlias = Literal["all", "no-tools-while-reasoning", "none"]


class ChoiceRefusal(NamedTuple):
    """Why a tool choice is refused, and where that rule comes from."""

    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Facts about a model family at any provider.

    `providers` are names of provider entries and `dialects` are API formats (empty means any). `matches` are
    globs for the model's name; the first profile that matches applies. `params` renames well-known
    parameters for this family; None means that it has no such parameter.

    Three mappings from a parameter, by its well-known name or its wire name, to a reason: `refuses` always
    applies, `refuses_reasoning` while the model reasons, and `ignores` has parameters that are accepted
    without effect. Of each group in `exclusive`, only one parameter may be sent. `defaults` are well-known
    parameters that the API requires. `effort` has the wire names of the parameter that switches reasoning,
    and `off` is its value that stops reasoning. `refuses_values` has, by wire name, values that are refused,
    with the reason. `chat` is what the chat completions of a provider that also has the Responses API offer.

    Two mappings from a tool choice to a reason: `refuses_choice` always applies, `refuses_choice_reasoning`
    while the model reasons, unless one of the parameters in `frees_choice` has the value given there. The
    keys are "none", "required" and "named", for a choice that names a tool. With `choice_stops_reasoning`, a
    model that is forced to call a tool answers without reasoning.
    """

    family: str
    providers: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    matches: tuple[str, ...] = ("*",)
    params: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    reasoning: Reasoning = "never"
    effort: tuple[str, ...] = ("reasoning_effort", "reasoning.effort")
    off: Any = field(default="none", hash=False)
    refuses: Mapping[str, str] = field(default_factory=dict, hash=False)
    refuses_reasoning: Mapping[str, str] = field(default_factory=dict, hash=False)
    ignores: Mapping[str, str] = field(default_factory=dict, hash=False)
    exclusive: tuple[tuple[str, ...], ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    chat: ChatSupport = "all"
    refuses_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    refuses_choice: Mapping[str, str] = field(default_factory=dict, hash=False)
    refuses_choice_reasoning: Mapping[str, str] = field(default_factory=dict, hash=False)
    frees_choice: Mapping[str, str] = field(default_factory=dict, hash=False)
    choice_stops_reasoning: bool = False
    source: str
    checked: str

    def __post_init__(self) -> None:
        for member in fields(self):
            if isinstance(value := getattr(self, member.name), Mapping):
                object.__setattr__(self, member.name, MappingProxyType(dict(value)))

    def applies_to(self, provider: str, model: str, dialect: str | None = None) -> bool:
        """Whether this profile applies to a model at a provider, in an API format."""
        if self.providers and provider not in self.providers:
            return False
        if self.dialects and dialect is not None and dialect not in self.dialects:
            return False
        return any(fnmatchcase(model.lower(), glob) for glob in self.matches)

    def is_reasoning(self, extra: Mapping[str, Any]) -> bool:
        """Whether the model reasons in a call with these pass-through parameters."""
        if self.reasoning in ("never", "always"):
            return self.reasoning == "always"
        effort = next(
            (value for name in self.effort if (value := _get_member(extra, name)) is not None), None
        )
        return self.reasoning == "default" if effort is None else bool(effort != self.off)

    def get_refusals(self, extra: Mapping[str, Any]) -> Mapping[str, str]:
        """Parameter to reason, for a call with these pass-through parameters."""
        if self.is_reasoning(extra):
            return {**self.refuses, **self.refuses_reasoning}
        return self.refuses

    def find_chat_gap(self, extra: Mapping[str, Any], *, tools: bool) -> str | None:
        """Return why chat completions cannot serve a call with or without tools, None if they can."""
        if self.chat == "none":
            return "chat completions do not serve this model"
        if tools and self.chat == "no-tools-while-reasoning" and self.is_reasoning(extra):
            return "chat completions take no tools while this model reasons"
        return None

    def find_value_refusal(self, name: str, value: Any) -> str | None:
        """Return why the model refuses this value of a pass-through parameter, None if it does not."""
        for wire, refused in self.refuses_values.items():
            if wire.partition(".")[0] == name:
                given = _get_member({name: value}, wire)
                if isinstance(given, str) and given in refused:
                    return refused[given]
        return None

    def find_choice_refusal(self, choice: str, extra: Mapping[str, Any]) -> ChoiceRefusal | None:
        """Return why the model refuses this tool choice, None if it does not.

        `choice` is auto, none, required or the name of a tool; `extra` are the call's pass-through
        parameters.
        """
        kind = get_choice_kind(choice)
        reason = self.refuses_choice.get(kind)
        if reason is None and kind in self.refuses_choice_reasoning and self.is_reasoning(extra):
            freed = any(_get_member(extra, wire) == value for wire, value in self.frees_choice.items())
            reason = None if freed else self.refuses_choice_reasoning[kind]
        return None if reason is None else ChoiceRefusal(reason, self.source)

    def as_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        return {member.name: _to_plain(getattr(self, member.name)) for member in fields(self)}


def get_choice_kind(choice: str) -> str:
    """Return the kind of a tool choice: auto, none, required, or "named" for the name of a tool."""
    return choice if choice in _GENERAL_CHOICES else "named"


def _refuse_forcing(reason: str) -> dict[str, str]:
    """Return the rule that no tool call can be forced."""
    return dict.fromkeys(("required", "named"), reason)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _get_member(extra: Mapping[str, Any], name: str) -> Any:
    """Return a member by its wire name; a dot leads to a member of an object."""
    value: Any = extra
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


_CHECKED = "2026-11-21"
_CHOICES_CHECKED = "2026-11-23"
_OPENAI_SOURCE = "openai 3.52 SDK; pydantic-ai 2.68 profiles; litellm#13781"
#: only the Responses API: `ResponsesModel` of the SDK; 404 at chat completions: litellm#23143,
#: llama_index#20361, egoist/chatwise-releases#1122 and #1256, SillyTavern#5212
#: no tools while reasoning: openai-openapi#541, litellm#34569, livekit/agents#7169
_OPENAI_CHAT_SOURCE = f"{_OPENAI_SOURCE}; openai-openapi#541; litellm#23143, #34569; SillyTavern#5212"
_OPENAI_SAMPLING = "the model reasons, and refuses sampling parameters then"
_NO_STOP = "the model takes no stop sequences"
_OPENAI_REFUSED = dict.fromkeys(
    ("temp", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
    _OPENAI_SAMPLING,
)


def _build_openai_globs(*names: str) -> tuple[str, ...]:
    """Globs for a model, its dated and sized variants (`-mini`, `-2025-08-07`) and its fine-tunes."""
    return tuple(glob for name in names for glob in (name, f"{name}-*", f"ft:{name}:*", f"ft:{name}-*"))


def _make_openai_profile(
    family: str,
    matches: tuple[str, ...],
    reasoning: Reasoning,
    *,
    stop: bool = True,
    chat: ChatSupport = "all",
) -> Profile:
    return Profile(
        family=family,
        # a deployment's name hides the model at Azure, and gateways drop what an upstream refuses
        providers=("openai",),
        matches=matches,
        reasoning=reasoning,
        refuses={} if stop else {"stop": _NO_STOP},
        refuses_reasoning={} if reasoning == "never" else _OPENAI_REFUSED,
        chat=chat,
        source=_OPENAI_SOURCE if chat == "all" else _OPENAI_CHAT_SOURCE,
        checked=_CHECKED,
    )


_NO_TOOLS: ChatSupport = "no-tools-while-reasoning"

# order matters: the first that fits wins
OPENAI_PROFILES = (
    _make_openai_profile("openai-gpt-5-chat", _build_openai_globs("gpt-5-chat"), "never"),
    _make_openai_profile("openai-pro", ("gpt-5-pro*", "o3-pro*"), "always", stop=False, chat="none"),
    _make_openai_profile("openai-later-pro", ("gpt-*-pro", "gpt-*-pro-*", "o1-pro*"), "always", chat="none"),
    _make_openai_profile("openai-deep-research", ("*-deep-research*",), "always", stop=False, chat="none"),
    _make_openai_profile(
        "openai-codex", ("gpt-5-codex*", "gpt-5.1-codex*", "codex-mini*"), "always", chat="none"
    ),
    _make_openai_profile("openai-later-codex", ("gpt-*-codex*",), "opt-in", chat="none"),
    # nothing is known about their reasoning: the server decides
    _make_openai_profile(
        "openai-special",
        ("gpt-*-cyber*", "gpt-daybreak-*", "gpt-rosalind-*", "gpt-*-rosalind*", "computer-use-preview*"),
        "never",
        chat="none",
    ),
    _make_openai_profile(
        "openai-always-reasoning", ("gpt-6-astra*", "gpt-6.1-sol*"), "always", chat=_NO_TOOLS
    ),
    _make_openai_profile("openai-chat-reasoning", ("gpt-5.?-chat*", "gpt-6*-chat*"), "always"),
    _make_openai_profile("openai-gpt-5.1", _build_openai_globs("gpt-5.1", "gpt-5.2", "gpt-5.3"), "opt-in"),
    _make_openai_profile("openai-gpt-5.4", _build_openai_globs("gpt-5.4"), "opt-in", chat=_NO_TOOLS),
    _make_openai_profile(
        "openai-gpt-5.5", (*_build_openai_globs("gpt-5.5", "gpt-5.6"), "gpt-6*"), "default", chat=_NO_TOOLS
    ),
    _make_openai_profile("openai-gpt-5", _build_openai_globs("gpt-5"), "default", stop=False),
    _make_openai_profile("openai-o1", _build_openai_globs("o1", "o3-mini"), "default"),
    _make_openai_profile("openai-o3", _build_openai_globs("o3", "o4-mini"), "default", stop=False),
)


_DEEPSEEK_NO_EFFECT = "accepted in thinking mode, without effect"
_DEEPSEEK_CHOICE = _refuse_forcing("thinking mode does not support this tool_choice")


def _make_deepseek_profile(
    family: str, provider: str, matches: tuple[str, ...], reasoning: Reasoning, **rules: Any
) -> Profile:
    return Profile(
        family=family,
        providers=(provider,),
        matches=matches,
        reasoning=reasoning,
        effort=("thinking.type",),
        off="disabled",
        source="api-docs.deepseek.com; pydantic-ai 2.68 profiles; cloudwego/eino#994; BerriAI/litellm#37470",
        checked=_CHOICES_CHECKED,
        **rules,
    )


_DEEPSEEK_RULES: Mapping[str, Any] = {
    "refuses_reasoning": dict.fromkeys(("logprobs", "top_logprobs"), "an error in thinking mode"),
    "ignores": dict.fromkeys(("temp", "top_p", "presence_penalty", "frequency_penalty"), _DEEPSEEK_NO_EFFECT),
    "refuses_choice_reasoning": _DEEPSEEK_CHOICE,
}

DEEPSEEK_PROFILES = (
    _make_deepseek_profile(
        "deepseek-reasoner", "deepseek", ("deepseek-reasoner*",), "always", **_DEEPSEEK_RULES
    ),
    _make_deepseek_profile(
        "deepseek-thinking", "deepseek", ("deepseek-flash*", "deepseek-v4*"), "default", **_DEEPSEEK_RULES
    ),
    # whether Together passes DeepSeek's switch of thinking on is not known
    _make_deepseek_profile(
        "deepseek-at-together",
        "together",
        ("deepseek-ai/deepseek-v4-*",),
        "always",
        refuses_choice=_DEEPSEEK_CHOICE,
    ),
)


_KIMI_CHOICE = _refuse_forcing("its thinking mode does not support a forced tool_choice")
_KIMI_SOURCE = "platform.kimi.ai/docs/guide/use-thinking-models; pydantic-ai 2.68 profiles; harn-vm 0.10.120"


def _make_kimi_profile(family: str, matches: tuple[str, ...], reasoning: Reasoning, **rules: Any) -> Profile:
    return Profile(
        family=family,
        providers=("moonshot",),
        matches=matches,
        reasoning=reasoning,
        effort=("thinking.type",),
        off="disabled",
        source=_KIMI_SOURCE,
        checked=_CHOICES_CHECKED,
        **rules,
    )


# Kimi K3 takes a forced choice since August 2026
MOONSHOT_PROFILES = (
    _make_kimi_profile(
        "kimi-thinking",
        ("kimi-k2.7*", "kimi-k2-thinking*", "kimi-thinking*"),
        "always",
        refuses_choice=_KIMI_CHOICE,
    ),
    _make_kimi_profile(
        "kimi-k2.5", ("kimi-k2.5*", "kimi-k2.6*"), "default", refuses_choice_reasoning=_KIMI_CHOICE
    ),
    _make_kimi_profile(
        "moonshot-v1",
        ("moonshot-v1*",),
        "never",
        refuses_choice={"required": "the API has no tool_choice required"},
    ),
)


QWEN_PROFILES = (
    Profile(
        family="qwen-thinking",
        providers=("dashscope",),
        # the switch is `enable_thinking`; whether it is on by default differs between models
        matches=("qw*",),
        reasoning="opt-in",
        effort=("enable_thinking",),
        off=False,
        refuses_choice_reasoning=_refuse_forcing(
            "tool_choice cannot be required or name a tool in thinking mode"
        ),
        source="cloudwego/eino#994; QwenLM/qwen-code#7659; agentscope-ai/agentscope#1608",
        checked=_CHOICES_CHECKED,
    ),
)


META_PROFILES = (
    Profile(
        family="muse",
        providers=("meta",),
        refuses_choice=dict.fromkeys(
            ("none", "required", "named"), "the API takes no other tool_choice than auto"
        ),
        source="pydantic-ai 2.68, its provider for api.meta.ai",
        checked=_CHOICES_CHECKED,
    ),
)


_XAI_REFUSED = dict.fromkeys(
    ("stop", "presence_penalty", "frequency_penalty"), "reasoning Grok models refuse this parameter"
)
_XAI_SOURCE = "xai-sdk 1.21; docs.x.ai; litellm 1.109"

XAI_PROFILES = (
    Profile(
        family="xai-plain",
        providers=("xai",),
        matches=("*non-reasoning*",),
        source=_XAI_SOURCE,
        checked=_CHECKED,
    ),
    Profile(
        family="xai-reasoning",
        providers=("xai",),
        matches=("*-reasoning*", "grok-3-mini*", "grok-4", "grok-4-0709", "grok-4-latest"),
        reasoning="always",
        refuses_reasoning=_XAI_REFUSED,
        source=_XAI_SOURCE,
        checked=_CHECKED,
    ),
)


_ANTHROPIC_SOURCE = (
    "platform.claude.com/docs/en: api/versioning, build-with-claude/extended-thinking; "
    "anthropic 2.12 SDK; pydantic-ai 2.68 profiles"
)
_ONE_OF_TWO = f"{_ANTHROPIC_SOURCE}; litellm#15097"

#: without a stream a longer answer may take over ten minutes: the SDK's bound is 21,333 tokens
_LONG_OUTPUT = {"max_tokens": 16_384}

_ANTHROPIC_SAMPLING = dict.fromkeys(
    ("temp", "temperature", "top_p", "top_k"), "the model takes no sampling parameters on any API version"
)
_WHILE_THINKING = dict.fromkeys(
    ("temp", "temperature", "top_k"), "the model thinks, and takes no such parameter then"
)
#: a budget of tokens, the mode of before adaptive thinking
_BUDGET = {"enabled": "the model takes no budget_tokens; use thinking.type=adaptive"}
_ALWAYS_THINKS = dict.fromkeys(("disabled", "between_tools"), "the model always thinks")
_CLAUDE_CHOICE = _refuse_forcing("the model takes no forced tool_choice; auto and none remain")
_EXTENDED_CHOICE = _refuse_forcing("extended thinking takes no forced tool_choice; auto and none remain")
_CLAUDE_CHOICE_SOURCE = (
    "platform.claude.com/docs/en: models/opus-5-5/whats-new-opus-5-5, "
    "models/sonnet-5-5/whats-new-sonnet-5-5, agents-and-tools/tool-use/implement-tool-use; "
    "pydantic-ai 2.68 profiles"
)


def _build_claude_globs(*names: str) -> tuple[str, ...]:
    """Globs for models, their dated and versioned ids, below a region or a publisher (`us.anthropic.`)."""
    return tuple(glob for name in names for glob in (f"*claude-{name}", f"*claude-{name}[-@:]*"))


def _make_claude_profile(
    family: str,
    names: tuple[str, ...],
    reasoning: Reasoning,
    *,
    off: str = "disabled",
    sampling: bool = True,
    exclusive: bool = False,
    long: bool = True,
    forced: bool = True,
    thinking: Mapping[str, str] = MappingProxyType({}),
    **rules: Any,
) -> Profile:
    """Return the profile of a family under Anthropic's own model names.

    With `forced`, a tool call can be forced. `thinking` has the values of `thinking.type` that are refused.
    """
    source = _ONE_OF_TWO if exclusive else _ANTHROPIC_SOURCE
    return Profile(
        family=family,
        providers=("anthropic", "vertex"),
        matches=_build_claude_globs(*names),
        reasoning=reasoning,
        effort=("thinking.type",),
        off=off,
        refuses={} if sampling else _ANTHROPIC_SAMPLING,
        refuses_reasoning=_WHILE_THINKING if sampling else {},
        exclusive=(("temp", "top_p"),) if exclusive else (),
        defaults=_LONG_OUTPUT if long else {},
        refuses_values={
            **({"thinking.type": thinking} if thinking else {}),
            # a choice in the API's own form, as a pass-through parameter
            **(
                {}
                if forced
                else {"tool_choice.type": dict.fromkeys(("any", "tool"), _CLAUDE_CHOICE["named"])}
            ),
        },
        refuses_choice={} if forced else _CLAUDE_CHOICE,
        refuses_choice_reasoning=_EXTENDED_CHOICE if sampling else {},
        source=f"{source}; {_CLAUDE_CHOICE_SOURCE}",
        checked=_CHOICES_CHECKED,
        **rules,
    )


_NEW_AT_GATEWAYS = ("opus-4.7", "opus-4.8", "opus-5", "sonnet-5", "haiku-5.5", "fable-5", "mythos-5")
#: models that take no forced tool choice, with a dash in the version
_UNFORCED = ("opus-5-5", "sonnet-5-5", "fable-5-1", "fable-5-2", "mythos-5-1", "mythos-5-2")
_AT_OPENROUTER: Mapping[str, Any] = {
    "providers": ("openrouter",),
    "ignores": dict.fromkeys(
        ("temp", "top_p", "top_k"), "the gateway drops sampling parameters for this model"
    ),
    "source": (f"openrouter 1.3.84 SDK; platform.claude.com/docs/en/api/versioning; {_CLAUDE_CHOICE_SOURCE}"),
    "checked": _CHOICES_CHECKED,
}

# order matters: the first that fits wins
ANTHROPIC_PROFILES = (
    _make_claude_profile(
        "claude-5.5-thinking",
        tuple(name for name in _UNFORCED if not name.startswith("sonnet")),
        "always",
        sampling=False,
        forced=False,
        thinking={**_BUDGET, **_ALWAYS_THINKS},
    ),
    _make_claude_profile(
        "claude-5-thinking",
        ("fable-5", "mythos-5"),
        "always",
        sampling=False,
        thinking={**_BUDGET, **_ALWAYS_THINKS},
        choice_stops_reasoning=True,
    ),
    _make_claude_profile(
        "claude-sonnet-5.5",
        ("sonnet-5-5",),
        "default",
        off="between_tools",
        sampling=False,
        forced=False,
        thinking={**_BUDGET, "disabled": "to turn thinking off, use thinking.type=between_tools"},
    ),
    _make_claude_profile(
        "claude-5",
        ("opus-5", "sonnet-5", "haiku-5-5"),
        "default",
        sampling=False,
        thinking=_BUDGET,
        choice_stops_reasoning=True,
    ),
    _make_claude_profile(
        "claude-4.7",
        ("opus-4-7", "opus-4-8"),
        "opt-in",
        sampling=False,
        thinking=_BUDGET,
        choice_stops_reasoning=True,
    ),
    _make_claude_profile(
        "claude-4.6",
        ("opus-4-6", "sonnet-4-6"),
        "opt-in",
        exclusive=True,
        frees_choice={"thinking.type": "adaptive"},
        choice_stops_reasoning=True,
    ),
    _make_claude_profile("claude-4.5", ("opus-4-5", "sonnet-4-5", "haiku-4-5"), "opt-in", exclusive=True),
    # before Sonnet 4.5 a request is refused where prompt and max_tokens together pass the context window
    _make_claude_profile("claude-4.1", ("opus-4-1",), "opt-in", exclusive=True, long=False),
    _make_claude_profile(
        "claude-4", ("opus-4", "sonnet-4", "4-opus", "4-sonnet", "3-7-sonnet"), "opt-in", long=False
    ),
    Profile(
        family="claude-5.5-at-openrouter",
        matches=tuple(f"anthropic/claude-{name[:-2]}.{name[-1]}*" for name in _UNFORCED),
        refuses_choice=_CLAUDE_CHOICE,
        **_AT_OPENROUTER,
    ),
    Profile(
        family="claude-4.7-at-openrouter",
        matches=tuple(f"anthropic/claude-{name}*" for name in _NEW_AT_GATEWAYS),
        **_AT_OPENROUTER,
    ),
)


_GUIDE = "docs.aws.amazon.com/bedrock/latest/userguide"
_CACHING = f"{_GUIDE}/prompt-caching.html"
_FEATURES = f"{_GUIDE}/conversation-inference-supported-models-features.html"

_BEDROCK_CLAUDE: Mapping[str, str | None] = {
    "top_k": "additionalModelRequestFields.top_k",
    "cache": "cachePoint",
}
_BEDROCK_NOVA: Mapping[str, str | None] = {
    "top_k": "additionalModelRequestFields.inferenceConfig.topK",
    "cache": "cachePoint",
}
_BEDROCK_OTHER: Mapping[str, str | None] = {"top_k": None, "cache": None}


def _build_bedrock_globs(*starts: str) -> tuple[str, ...]:
    """Globs for ids: as they are, with a geography before them, at the end of an ARN."""
    return tuple(glob for start in starts for glob in (f"{start}*", f"*[./]{start}*"))


def _build_bedrock_claude_globs(*names: str) -> tuple[str, ...]:
    return _build_bedrock_globs(*(f"anthropic.claude-{name}" for name in names))


def _make_bedrock_profile(
    family: str, matches: tuple[str, ...], params: Mapping[str, str | None], source: str, **rules: Any
) -> Profile:
    return Profile(
        family=family,
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        matches=matches,
        params=params,
        source=source,
        checked=_CHECKED,
        **rules,
    )


#: thinking of a Claude model at Bedrock
_BEDROCK_THINKING: Mapping[str, Any] = {
    "reasoning": "opt-in",
    "effort": ("additionalModelRequestFields.thinking.type",),
    "off": "disabled",
    "refuses_choice_reasoning": _EXTENDED_CHOICE,
    "frees_choice": {"additionalModelRequestFields.thinking.type": "adaptive"},
}
_CLAUDE_SAMPLING = dict.fromkeys(
    ("temp", "top_p", "top_k"), "Claude takes no sampling parameters since Opus 4.7"
)
_BEDROCK_CHOICES = "langchain-ai/langchain-aws#620 and #627; pydantic-ai 2.68 profiles"

# order matters: the first that fits wins
BEDROCK_PROFILES = (
    _make_bedrock_profile(
        "bedrock-claude-5.5",
        _build_bedrock_claude_globs(*_UNFORCED),
        _BEDROCK_CLAUDE,
        f"{_CACHING}; {_CLAUDE_CHOICE_SOURCE}",
        refuses=_CLAUDE_SAMPLING,
        refuses_values={"additionalModelRequestFields.thinking.type": _BUDGET},
        refuses_choice=_CLAUDE_CHOICE,
    ),
    _make_bedrock_profile(
        "bedrock-claude-4.7",
        # every Claude after Opus 4.6, Sonnet 4.6 and Haiku 4.5
        _build_bedrock_claude_globs(
            "opus-4-7", "opus-4-8", "opus-4-9", "opus-5", "sonnet-5", "haiku-5", "fable", "mythos"
        ),
        _BEDROCK_CLAUDE,
        f"{_CACHING}; github.com/cline/cline/issues/10572, promptfoo/promptfoo/issues/10307",
        refuses=_CLAUDE_SAMPLING,
        refuses_values={"additionalModelRequestFields.thinking.type": _BUDGET},
    ),
    _make_bedrock_profile(
        "bedrock-claude-4.1",
        _build_bedrock_claude_globs(
            "opus-4-1", "opus-4-5", "opus-4-6", "sonnet-4-5", "sonnet-4-6", "haiku-4-5"
        ),
        _BEDROCK_CLAUDE,
        f"{_CACHING}; github.com/mem0ai/mem0/pull/4147; github.com/browseros-ai/BrowserOS/issues/208; "
        f"{_CLAUDE_CHOICE_SOURCE}",
        exclusive=(("temp", "top_p"),),
        **_BEDROCK_THINKING,
    ),
    _make_bedrock_profile(
        "bedrock-claude-3",
        # those from before prompt caches
        _build_bedrock_claude_globs("3-haiku", "3-sonnet", "3-opus", "3-5-sonnet-20240620", "v2", "instant"),
        {**_BEDROCK_CLAUDE, "cache": None},
        _CACHING,
    ),
    _make_bedrock_profile(
        "bedrock-claude",
        _build_bedrock_claude_globs(""),
        _BEDROCK_CLAUDE,
        f"{_CACHING}; {_GUIDE}/model-parameters-anthropic-claude-messages.html; {_CLAUDE_CHOICE_SOURCE}",
        **_BEDROCK_THINKING,
    ),
    _make_bedrock_profile(
        "bedrock-nova",
        _build_bedrock_globs("amazon.nova-"),
        _BEDROCK_NOVA,
        f"{_CACHING}; docs.aws.amazon.com/nova/latest/nova2-userguide/core-inference.html",
    ),
    _make_bedrock_profile(
        "bedrock-without-system",
        _build_bedrock_globs(
            "amazon.titan-text", "mistral.mistral-7b-instruct", "mistral.mixtral-8x7b-instruct"
        ),
        _BEDROCK_OTHER,
        f"{_FEATURES}; github.com/567-labs/instructor/issues/1753",
        refuses={"system": "Converse takes no system prompt for this model"},
    ),
    _make_bedrock_profile(
        "bedrock-llama",
        _build_bedrock_globs("meta.llama"),
        _BEDROCK_OTHER,
        _BEDROCK_CHOICES,
        refuses_choice=_refuse_forcing("Converse takes no forced toolChoice for Llama models"),
    ),
    _make_bedrock_profile(
        "bedrock-mistral-large",
        _build_bedrock_globs("mistral.mistral-large"),
        _BEDROCK_OTHER,
        f"botocore 1.44's service model: ToolChoice; {_BEDROCK_CHOICES}",
        refuses_choice={"named": "Converse takes toolChoice.tool only for Claude and Nova models"},
    ),
    # DeepSeek, Qwen, gpt-oss…: Converse itself has neither
    _make_bedrock_profile(
        "bedrock-other",
        ("*",),
        _BEDROCK_OTHER,
        f"botocore 1.44's service model: InferenceConfiguration; {_CACHING}",
    ),
)


_GEMINI_SOURCE = "ai.google.dev/gemini-api/docs/thinking; google-genai 3.4 SDK; pydantic-ai 2.68 profiles"
_GEMINI_SAMPLING_SOURCE = (
    "ai.google.dev/gemini-api/docs/generate-content/whats-new-gemini-3.6, .../changelog 2026-10-08; "
    "langchain-google#1897; pydantic-ai 2.68 profiles"
)
_GEMINI_IGNORED = dict.fromkeys(
    ("temp", "top_p", "top_k"), "Gemini 3.5 Flash and later take sampling parameters and do not use them"
)
_GEMINI_BUDGET = "generationConfig.thinkingConfig.thinkingBudget"
_GEMINI_LEVEL = "generationConfig.thinkingConfig.thinkingLevel"


def _make_gemini_profile(
    family: str, reasoning: Reasoning, *matches: str, level: bool = True, fixed: bool = False
) -> Profile:
    """`level`: thinking has levels, not a budget. `fixed`: sampling cannot be changed."""
    return Profile(
        family=family,
        providers=("gemini", "vertex"),
        matches=matches,
        reasoning=reasoning,
        effort=(_GEMINI_LEVEL if level else _GEMINI_BUDGET,),
        # a level cannot be "none": the lowest one still thinks
        off=None if level else 0,
        ignores=_GEMINI_IGNORED if fixed else {},
        source=_GEMINI_SAMPLING_SOURCE if fixed else _GEMINI_SOURCE,
        checked=_CHECKED,
    )


# order matters: the first that fits wins
GEMINI_PROFILES = (
    _make_gemini_profile("gemini-2.5-image", "never", "gemini-2.5-flash-image*", level=False),
    _make_gemini_profile("gemini-2.5-flash-lite", "opt-in", "gemini-2.5-flash-lite*", level=False),
    _make_gemini_profile("gemini-2.5-flash", "default", "gemini-2.5-flash*", level=False),
    _make_gemini_profile("gemini-2.5-pro", "always", "gemini-2.5-pro*", level=False),
    _make_gemini_profile("gemini-3", "always", "gemini-3-*", "gemini-3.[1-4]-*"),
    # requests for gemini-3.5-flash are routed to gemini-3.6-flash since 2026-10-08
    _make_gemini_profile(
        "gemini-3.5",
        "always",
        "gemini-3.[5-9]-*",
        "gemini-[4-9]*",
        "gemini-flash-latest",
        "gemini-flash-lite-latest",
        fixed=True,
    ),
)


#: for an unknown model: everything is sent, and the server decides
DEFAULT = Profile(family="default", source="no profile names this model", checked="2026-11-21")

BUILTIN_PROFILES: tuple[Profile, ...] = (
    *OPENAI_PROFILES,
    *DEEPSEEK_PROFILES,
    *MOONSHOT_PROFILES,
    *QWEN_PROFILES,
    *META_PROFILES,
    *XAI_PROFILES,
    *ANTHROPIC_PROFILES,
    *BEDROCK_PROFILES,
    *GEMINI_PROFILES,
)


@lru_cache(maxsize=512)
def find_profile(provider_name: str, model: str, dialect: str | None = None) -> Profile:
    """Return the first profile for this model at the provider, else `DEFAULT`."""
    profiles = (profile for profile in BUILTIN_PROFILES if profile.applies_to(provider_name, model, dialect))
    return next(profiles, DEFAULT)
