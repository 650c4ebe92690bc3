"""Rule files: strict TOML, and what is written is read as the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.errors import InvalidRequest
from leased.server import rule_files
from leased.server.credentials import RuleSet
from leased.server.rule_files import read_rule_file, read_rule_set, write_rule_file, write_rule_set

GOOD = """
[ruleSet]
name = "own-prefix"
resourceType = "lock"

[rules.lock]
acquire = "record.key.startsWith('user:' + user.userId + ':')"
renew = '''
// whoever holds it may keep it
true'''
"""


def test_a_rule_file_is_a_rule_set() -> None:
    """A6: tables `ruleSet` and `rules.lock`."""
    assert read_rule_file(GOOD, project="p") == RuleSet(
        "p",
        "own-prefix",
        "record.key.startsWith('user:' + user.userId + ':')",
        "// whoever holds it may keep it\ntrue",
    )
    assert read_rule_file('ruleSet = {name = "none", resourceType = "lock"}') == RuleSet("", "none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[ruleSet", "is not TOML"),
        ("", "ruleSet is no table"),
        ("ruleSet = 7", "ruleSet is no table"),
        (GOOD + "[other]\n", "the rule file has 'other', which is not known"),
        (GOOD.replace("renew", "release"), "rules.lock has 'release', which is not known"),
        (GOOD.replace("rules.lock", "rules.file"), "rules has 'file', which is not known"),
        (GOOD.replace('"lock"', '"file"'), "ruleSet.resourceType is file, not 'lock'"),
        (GOOD.replace('resourceType = "lock"', ""), "ruleSet.resourceType is None"),
        (GOOD.replace("own-prefix", "own prefix"), "no plain name"),
        (GOOD.replace('name = "own-prefix"', ""), "no plain name"),
        (GOOD + "acquire = 1\n", "is not TOML"),
        (GOOD.replace("renew = '''", "renew = 7 # '''"), "is not TOML"),
        (GOOD.replace("user.userId", "user.id"), "rules.lock.acquire cannot be used: line 1, column 37"),
        ("x" * 70_000, "more than 65536 characters"),
        ("a = " + "[" * 5000, "is not TOML"),
    ],
)
def test_a_rule_file_that_is_not_right_says_where(text: str, words: str) -> None:
    """A3, A6: what is not understood is refused, not skipped."""
    with pytest.raises(InvalidRequest) as caught:
        read_rule_file(text)
    assert words in caught.value.message


@pytest.mark.parametrize("found", [None, [], {"ruleSet": None}, {"ruleSet": {}, "rules": []}, {"rules": {}}])
def test_a_document_of_another_shape_is_refused(found: object) -> None:
    """A6: the same for what comes as JSON."""
    with pytest.raises(InvalidRequest):
        read_rule_set(found)
    with pytest.raises(InvalidRequest, match="is no text"):
        read_rule_set({"ruleSet": {"name": "a", "resourceType": "lock"}, "rules": {"lock": {"acquire": True}}})


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=60),
    st.one_of(st.none(), st.sampled_from(["true", "'\\n' == \"a\"", "a'''b", "x\n\ty", "end'", "\r\n", "\x00"])),
)
def test_what_is_written_is_read_as_the_same(acquire: str, renew: str | None) -> None:
    """A6: pull after push gives back the rules, character by character."""
    rule_set = RuleSet("p", "name", acquire, renew)
    text = write_rule_file(rule_set)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_files, "check_rule_set", lambda found: found)
        assert read_rule_file(text, project="p") == rule_set
        assert read_rule_set(json.loads(json.dumps(write_rule_set(rule_set))), project="p") == rule_set
