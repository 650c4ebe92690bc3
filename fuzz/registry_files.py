"""Registry files: read strictly, and what a credential is written as is read back the same."""

from fuzz.given import text_of
from leased.errors import InvalidRequest
from leased.server.registry_file import read_registry, write_entry

_FAR = 6e10


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised; each credential that was read is the same after it was written."""
    try:
        found = read_registry(text_of(data))
    except InvalidRequest:
        return
    for credential in found.credentials.values():
        if abs(credential.expires_at or 0.0) > _FAR:
            continue  # nobody makes such a key: its instant may be no date in UTC
        again = read_registry(write_entry(credential)).credentials[credential.id]
        assert again.principal() == credential.principal()
        assert again.digest == credential.digest
