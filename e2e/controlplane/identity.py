"""Who is who: a certificate authority, the serving certificate, static tokens and kubeconfig files."""

import datetime as dt
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID_FOR: Final = dt.timedelta(days=365)
CLOCK_SKEW: Final = dt.timedelta(hours=1)
DNS_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the authority clients trust, what the servers present, the key that signs service accounts."""

    ca: Path
    certificate: Path
    key: Path
    service_account_key: Path
    service_account_public_key: Path

    @classmethod
    def create(cls, folder: Path, addresses: Sequence[str] = ()) -> Self:
        """Fresh keys; the servers' certificate is good for loopback and for `addresses`."""
        folder.mkdir(mode=0o700)
        ca_key, key, accounts_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        ca = _certificate("plimsoll-ca", ca_key, issuer="plimsoll-ca", issuer_key=ca_key)
        serving = _certificate(
            "plimsoll-control-plane", key, issuer="plimsoll-ca", issuer_key=ca_key, addresses=("127.0.0.1", *addresses)
        )
        return cls(
            ca=_write(folder / "ca.crt", ca.public_bytes(serialization.Encoding.PEM)),
            certificate=_write(folder / "server.crt", serving.public_bytes(serialization.Encoding.PEM)),
            key=_write(folder / "server.key", _private_pem(key)),
            service_account_key=_write(folder / "service-accounts.key", _private_pem(accounts_key)),
            service_account_public_key=_write(folder / "service-accounts.pub", _public_pem(accounts_key)),
        )


@dataclass(frozen=True, slots=True)
class User:
    """An identity of the API server's static token file (read once, at its start)."""

    name: str
    token: str
    groups: tuple[str, ...] = ()

    @classmethod
    def named(cls, name: str, *groups: str) -> Self:
        return cls(name, secrets.token_hex(16), groups)

    def csv_line(self) -> str:
        line = f"{self.token},{self.name},{self.name}"
        return f'{line},"{",".join(self.groups)}"' if self.groups else line


def kubeconfig(path: Path, *, server: str, ca: Path, user: str, token: str, namespace: str = "default") -> Path:
    """Write a kubeconfig with one context; only its owner may read it."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plimsoll", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "plimsoll", "context": {"cluster": "plimsoll", "user": user, "namespace": namespace}}],
        "current-context": "plimsoll",
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _write(path, yaml.safe_dump(content).encode())


def _write(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    addresses: Sequence[str] = (),
) -> x509.Certificate:
    """A server's certificate for `addresses`, or an authority's without any."""
    authority = not addresses
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        # Python 3.13 verifies strictly (RFC 5280): both key identifiers and, of an authority, its key usage.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(_key_usage(authority=authority), critical=True)
    )
    if not authority:
        builder = builder.add_extension(_names(addresses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _names(addresses: Sequence[str]) -> x509.SubjectAlternativeName:
    ips = (x509.IPAddress(ipaddress.ip_address(address)) for address in addresses)
    return x509.SubjectAlternativeName([*ips, *(x509.DNSName(name) for name in DNS_NAMES)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
