"""Keys that show what they are: the shapes that providers and services give them.

A shape is a literal start, then a run of letters; both are cheap to look for. What the run must be
like keeps package names and prose (`sk-learn`, `gsk_test`) out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache

from onym.uri._redact_view import Span

__all__ = ["PEM_BEGIN", "PEM_END", "PEM_REACH", "keys", "looks_random"]

PEM_BEGIN = "-----BEGIN"
PEM_END = "-----END"
#: how far behind its first line the last line of a PEM block may stand, in characters
PEM_REACH = 16_384

_WORD = "[A-Za-z0-9]"
_SLUG = "[A-Za-z0-9_-]"
_BASE64 = "[A-Za-z0-9+/=_-]"
#: start, what a run is made of, how long it is at least
_SHAPES: tuple[tuple[str, str, int], ...] = (
    ("sk-proj-", _SLUG, 8),  # OpenAI: project, service account, administrator
    ("sk-svcacct-", _SLUG, 8),
    ("sk-admin-", _SLUG, 8),
    ("sk-ant-", _SLUG, 12),  # Anthropic
    ("sk-or-", _SLUG, 12),  # OpenRouter
    ("sk-lf-", _SLUG, 12),  # Langfuse
    ("xai-", _SLUG, 16),
    ("gsk_", _WORD, 16),  # Groq
    ("pplx-", _WORD, 16),  # Perplexity
    ("AIza", _SLUG, 30),  # Google
    ("AQ.A", _SLUG, 24),
    ("GOCSPX-", _SLUG, 16),
    ("ya29.", "[A-Za-z0-9_.-]", 20),
    ("hf_", _WORD, 16),  # Hugging Face
    ("ghp_", _WORD, 16),  # GitHub
    ("gho_", _WORD, 16),
    ("ghu_", _WORD, 16),
    ("ghs_", _WORD, 16),
    ("ghr_", _WORD, 16),
    ("github_pat_", r"\w", 16),
    ("glpat-", _SLUG, 16),  # GitLab
    ("r8_", _WORD, 16),  # Replicate
    ("fw_", _WORD, 16),  # Fireworks
    ("fpk_", _WORD, 16),
    ("nvapi-", _SLUG, 16),  # NVIDIA
    ("csk-", _WORD, 16),  # Cerebras
    ("tgp_v1_", _SLUG, 16),  # Together
    ("vck_", _SLUG, 16),  # Vercel
    ("tvly-", _SLUG, 16),  # Tavily
    ("lsv2_", r"\w", 16),  # LangSmith
    ("dapi", "[0-9a-f]", 32),  # Databricks
    ("ABSK", _BASE64, 30),  # Bedrock
    ("bedrock-api-key-", _BASE64, 16),
    ("hvs.", _SLUG, 16),  # HashiCorp Vault
    ("npm_", _WORD, 30),
    ("pypi-AgE", _SLUG, 16),
    ("dckr_pat_", _SLUG, 16),
    ("xoxb-", _SLUG, 16),  # Slack
    ("xoxp-", _SLUG, 16),
    ("xoxa-", _SLUG, 16),
    ("xapp-", _SLUG, 16),
    ("hooks.slack.com/services/", "[A-Za-z0-9/]", 20),
    ("sk_live_", _WORD, 12),  # Stripe
    ("sk_test_", _WORD, 12),
    ("rk_live_", _WORD, 12),
    ("whsec_", _BASE64, 16),
    ("SG.", "[A-Za-z0-9_.-]", 40),  # SendGrid
    ("AGE-SECRET-KEY-1", "[A-Z0-9]", 40),
    ("onym_reg_", _SLUG, 32),  # the registry of Onym
    ("ls__", _WORD, 32),  # LangSmith, of old
    ("pcsk_", r"\w", 32),  # Pinecone
    ("flp_", _WORD, 32),  # Friendli
    ("rpa_", _WORD, 32),  # RunPod
    ("e2b_", "[0-9a-f]", 40),
    ("api_org_", _WORD, 32),  # Hugging Face, of organizations
    ("sk-helicone-", _SLUG, 16),
    ("sess-", _WORD, 40),  # OpenAI: sessions
    ("gldt-", _SLUG, 16),  # GitLab
    ("glrt-", _SLUG, 16),
    ("glptt-", _WORD, 40),
    ("dckr_oat_", _SLUG, 16),
    ("hvb.", _SLUG, 24),
    ("xoxe-", _SLUG, 24),
    ("rk_test_", _WORD, 12),
    ("dop_v1_", "[0-9a-f]", 64),  # DigitalOcean
    ("doo_v1_", "[0-9a-f]", 64),
    ("HRKU-", _SLUG, 36),  # Heroku
    ("shpat_", _WORD, 32),  # Shopify
    ("shpss_", _WORD, 32),
    ("lin_api_", _WORD, 32),  # Linear
    ("ntn_", _WORD, 40),  # Notion
    ("figd_", _SLUG, 32),  # Figma
    ("glsa_", r"\w", 32),  # Grafana
    ("glc_", _BASE64, 40),
    ("NRAK-", "[A-Z0-9]", 27),  # New Relic
    ("sntrys_", _BASE64, 40),  # Sentry
    ("sntryu_", "[0-9a-f]", 64),
    ("ATATT3", _BASE64, 60),  # Atlassian
    ("ATBB", _WORD, 32),
    ("pscale_tkn_", _SLUG, 32),  # PlanetScale
    ("PMAK-", _SLUG, 40),  # Postman
    ("rubygems_", "[0-9a-f]", 48),
    ("sq0atp-", _SLUG, 22),  # Square
    ("sq0csp-", _SLUG, 40),
    ("sbp_", "[0-9a-f]", 40),  # Supabase
    ("sb_secret_", _SLUG, 24),
    ("dp.pt.", _WORD, 40),  # Doppler
    ("sgp_", r"\w", 40),  # Sourcegraph
    ("pul-", "[0-9a-f]", 40),  # Pulumi
    ("fo1_", _SLUG, 43),  # Fly.io
    ("fm2_", _BASE64, 60),
    ("AKCp", _WORD, 69),  # Artifactory
    ("LTAI", _WORD, 20),  # Alibaba Cloud
    ("AKID", _WORD, 32),  # Tencent Cloud
    ("vcp_", _SLUG, 24),  # Vercel
)
_AMAZON = ("AKIA", "ASIA", "ABIA", "ACCA")
# stands in the middle of the longer keys of Azure
_AZURE = "JQQJ99"
# starts that many names share: only a long piece without hyphens makes a key of what follows
_LOOSE: tuple[tuple[str, str, int], ...] = (
    ("sk-", _SLUG, 16),  # OpenAI, DeepSeek, Moonshot, LiteLLM
    ("key-", _SLUG, 16),  # Mailgun
    ("pa-", _SLUG, 24),  # Voyage
    ("psk-", _SLUG, 16),  # Parasail
    ("jina_", _SLUG, 16),
    ("sk_", _WORD, 40),  # ElevenLabs, Novita
    ("secret_", _WORD, 40),  # Notion, of old
    ("fc-", _WORD, 32),  # Firecrawl
)


@cache
def _shape(start: str, run: str, least: int) -> re.Pattern[str]:
    # the literal comes first, so that the search for it is a search for a literal
    return re.compile(f"{re.escape(start)}(?<![A-Za-z0-9]{re.escape(start)})({run}{{{least},}})")


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    amazon = re.compile(r"A(?<![A-Za-z0-9]A)(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])")
    token = re.compile(
        r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}"
    )
    block = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
    body = re.compile(r"(?:(?:[\s\"'+,]|\\[nrt]){0,32}[A-Za-z0-9+/=]{16,128}){0,512}")
    azure = re.compile(rf"JQQJ99(?<={_WORD}{{58}}){_WORD}{{20,30}}")
    return amazon, token, block, body, azure


@cache
def _kinds() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(r"\d"), re.compile(r"[^\W\d_]")


def looks_random(text: str, least: int) -> bool:
    """Whether a word is more likely drawn than written: digits and letters, both cases, or very long."""
    if len(text) < least:
        return False
    if len(text) >= 24:
        return True
    digit, letter = _kinds()
    if digit.search(text):
        return letter.search(text) is not None
    return len(text) >= 20 and text.lower() != text and text.upper() != text


def keys(text: str) -> Iterator[Span]:
    """Spans of everything that has the shape of a key."""
    for shapes, good in ((_SHAPES, _drawn), (_LOOSE, _long)):
        for start, run, least in shapes:
            if start in text:
                for match in _shape(start, run, least).finditer(text):
                    if good(match[1]):
                        yield match.span()
    amazon, token, block, body, azure = _patterns()
    if any(start in text for start in _AMAZON):
        yield from (match.span() for match in amazon.finditer(text))
    if "eyJ" in text:
        yield from (match.span() for match in token.finditer(text))
    if _AZURE in text:
        yield from ((match.start() - 52, match.end()) for match in azure.finditer(text))
    if PEM_BEGIN in text:
        yield from _blocks(text, block, body)


def _drawn(run: str) -> bool:
    return _kinds()[0].search(run) is not None or (run.lower() != run and run.upper() != run)


def _long(run: str) -> bool:
    return any(looks_random(part, 12) for part in run.replace("_", "-").split("-"))


def _blocks(text: str, block: re.Pattern[str], body: re.Pattern[str]) -> Iterator[Span]:
    """PEM private keys; one that is cut short goes as far as its lines look like one."""
    ends = [match.start() for match in re.finditer(PEM_END, text)]
    done = 0
    for match in block.finditer(text):
        if match.start() < done:
            continue
        index = bisect_left(ends, match.end())
        if index < len(ends) and ends[index] - match.end() <= PEM_REACH:
            tail = text.find("-----", ends[index] + len(PEM_END), ends[index] + 64)
            done = tail + 5 if tail >= 0 else ends[index] + len(PEM_END)
        else:
            done = body.match(text, match.end()).end()  # type: ignore[union-attr]  # matches "" too
            if done == match.end():
                continue  # the line alone is no secret
        yield match.start(), done
