"""Credentials taken out of texts of others before they are said: an engine's log, a node's message, a server's answer.

Whoever may read a VLLMService may not be the one who may read its pods' logs or the namespace's Secrets. A net, not a
proof: what looks like a credential is left out, known shapes first, then values of names that say so.
"""

import re
from typing import Final

LEFT_OUT: Final = "…"
# How credentials of hubs, clouds and APIs look by themselves: Hugging Face, OpenAI and alike, GitHub, AWS, JSON Web
# Tokens (service accounts among them), private keys.
_SHAPES: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}|\bsk-[A-Za-z0-9_-]{8,}|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|"
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?|"
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
)
_SIGNED: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
# Prose has colons after names, too ("Secret hf-token: create it"): one counts after a quote, or after a password.
_NAMED: Final = re.compile(
    r"(?i)((?:\b|_)(?:(?:api[_-]?key|access[_-]?key|secret[_-]?key|(?:hf|access|auth)[_-]?token|password|passwd|"
    r"client[_-]?secret|x-amz-signature|x-amz-credential|signature|sig)(?:['\"]\s?:\s?|\s?=\s?)|passw(?:or)?d:\s?)"
    r"['\"\[]{0,2})[^\s'\",}\]&]+"
)
_IN_URL: Final = re.compile(r"(://)[^\s/:@]{1,256}:[^\s/@]{1,256}@")


def redacted(text: str) -> str:
    """The text with ``…`` where credentials stood."""
    text = _SHAPES.sub(LEFT_OUT, text)
    text = _SIGNED.sub(rf"\1 {LEFT_OUT}", text)
    text = _IN_URL.sub(rf"\1{LEFT_OUT}@", text)
    return _NAMED.sub(rf"\1{LEFT_OUT}", text)
