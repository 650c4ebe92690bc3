"""A certificate for 127.0.0.1 and the authority that signed it, made anew for each run. It trusts nothing else."""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
from pathlib import Path

from tests.servers.accounts import own
from tests.servers.process import Place


def authority_file(place: Place) -> Path:
    """The certificate of the authority, which clients have to trust."""
    return place.directory / "authority.pem"


def certificate_file(place: Place) -> Path:
    """The certificate of the server."""
    return place.directory / "server.pem"


def key_file(place: Place) -> Path:
    """The key of the server."""
    return place.directory / "server.key"


def write(place: Place) -> None:
    """Put the three files where the server at this place may read them."""
    authority, certificate, key = _made()
    for path, text in (
        (authority_file(place), authority),
        (certificate_file(place), certificate),
        (key_file(place), key),
    ):
        path.write_bytes(text)
        path.chmod(0o600 if path == key_file(place) else 0o644)
        own(path, account=place.account)


@functools.cache
def _made() -> tuple[bytes, bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = dt.datetime.now(dt.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("leased test authority", "localhost")}
    names = {name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in keys}
    (issuer, issuer_key), (subject, subject_key) = ((names[name], key) for name, key in keys.items())

    def signed(name: x509.Name, key: ec.EllipticCurvePrivateKey, *, extension: x509.ExtensionType) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=30))
            .add_extension(extension, critical=False)
        )
        return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    valid_for = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    )
    return (
        signed(issuer, issuer_key, extension=x509.BasicConstraints(ca=True, path_length=None)),
        signed(subject, subject_key, extension=valid_for),
        subject_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
