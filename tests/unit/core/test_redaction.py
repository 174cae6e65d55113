"""Credentials in texts of others are not passed on; everything else is."""

import pytest

from plimsoll.core.logs import read_log
from plimsoll.core.redaction import redacted
from plimsoll.core.stable_text import stable

SECRETS = {
    "hub token": ("401 Client Error for token hf_AbCdEfGhIjKlMnOp", "hf_AbCdEfGhIjKlMnOp"),
    "API key": ("ValueError: Incorrect API key provided: sk-proj-Abc123456789", "sk-proj-Abc123456789"),
    "engine's own arguments": ("non-default args: {'api_key': ['s3cr3t'], 'port': 8000}", "s3cr3t"),
    "bearer": ("headers: Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
    "basic": ("proxy says: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "URL": ("Failed to connect to https://user:pa55@hub.example.com/x", "pa55"),
    "signed URL": ("403 Client Error: https://s3/x?X-Amz-Signature=deadbeef12&y=1", "deadbeef12"),
    "service account": ("token: eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln", "eyJpc3MiOiJrIn0"),
    "AWS": ("invalid AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    "environment": ("RuntimeError: HF_TOKEN=abc is malformed", "abc"),
    "password": ('{"password": "hunter2"}', "hunter2"),
    "YAML": ("password: hunter2", "hunter2"),
    "private key": ("-----BEGIN RSA PRIVATE KEY----- MIIEow", "MIIEow"),
}
PLAIN = (
    'secret "hf-token" not found',
    "couldn't find key token in Secret llm/hf",
    "Secret hf-token: create it",
    "Maximum concurrency for 131,072 tokens per request: 3.2x",
    "max seq len (131072), (9.1 GiB KV cache is needed, which is larger than the available KV cache memory (6.3 GiB)",
    "pad_token: '<pad>', eos_token=</s>",
    "https://hub.example.com:443/a@b",
    "unknown signature of scheme: int4",
)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_credential_is_left_out(kind: str) -> None:
    text, secret = SECRETS[kind]
    assert secret not in redacted(text)
    assert secret not in stable(text, 1000)


@pytest.mark.parametrize("kind", SECRETS)
def test_what_an_engine_says_of_its_end_holds_none(kind: str) -> None:
    text, secret = SECRETS[kind]
    log = read_log(f"{text}\nValueError: {text}\n")
    assert secret not in str(log)


@pytest.mark.parametrize("text", PLAIN)
def test_other_words_stay(text: str) -> None:
    assert redacted(text) == text
