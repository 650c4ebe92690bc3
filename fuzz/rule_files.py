"""Rule files: read strictly, and written back the same."""

from fuzz.given import text_of
from leased.errors import InvalidRequest
from leased.server.credentials import RuleSet
from leased.server.rule_files import read_rule_file, read_rule_set, write_rule_file, write_rule_set


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised; what was read is the same after it was written."""
    text = text_of(data)
    try:
        found = read_rule_file(text, project="p")
    except InvalidRequest:
        found = RuleSet("p", "n", acquire=text.encode(errors="replace").decode(), renew=None)
        try:  # any text at all, as it may be installed over the network
            again = read_rule_file(write_rule_file(found), project="p")
        except InvalidRequest as error:
            assert "not TOML" not in error.message, error.message
            return
        assert again == found
        return
    assert read_rule_file(write_rule_file(found), project="p") == found
    assert read_rule_set(write_rule_set(found), project="p") == found
