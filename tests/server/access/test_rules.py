"""Access rules: what they say, what cannot be installed, and that the worst of them only ever denies."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.errors import InvalidRequest
from leased.server import rules
from leased.server.rule_files import read_rule_file
from leased.server.rule_patterns import MAX_STEPS, steps_of
from leased.server.rule_trees import UnreadableTree, read_tree
from leased.server.rules import MAX_DEPTH, MAX_NODES, MAX_SOURCE, MAX_WORDS, Asked, DenyAll, compile_rule
from tests.docs.pages import blocks

MANY = int(os.environ.get("RULE_EXPRESSIONS", "4000"))
"""How many generated rules are tried: `RULE_EXPRESSIONS=100000` for the whole promise."""

PAGE = Path(__file__).parents[3] / "docs" / "service" / "rules.md"
ADA = Asked("ada", "member", "user:ada:report", frozenset({("ops", "team")}))
OWN = "record.key.startsWith('user:' + user.userId + ':')"


def says(source: str, asked: Asked = ADA) -> bool:
    """Whether a rule, compiled now, lets this pass."""
    return compile_rule(source).judge(asked).allowed


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("true", True),
        ("false", False),
        (OWN, True),
        ("record.key.startsWith('user:' + user.role + ':')", False),
        ("isMemberOf('ops', 'team')", True),
        ("isMemberOf('ops', 'squad')", False),
        ("isMemberOf('team', 'ops')", False),
        ("!isMemberOf('ops', 'squad') && user.role == 'member'", True),
        ("user.userId in ['ada', 'grace']", True),
        ("record.key.matches('^user:[a-z]{3}:report$')", True),
        ("record.key.matches('ports')", False),
        ("record.key.endsWith('port') || record.key.contains(':ada:')", True),
        ("user.role == 'admin' ? false : size(record.key) == 15", True),
        ("// who works at night\ntrue", True),
        ('"""user:ada:report""" == record.key', True),
        (r"r'\d' == '\\d'", True),
    ],
)
def test_a_rule_says_who_may(source: str, allowed: bool) -> None:
    """A1: a rule is one expression over the member, the key and groups."""
    assert says(source) is allowed


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("", "line 1, column 1: it is empty"),
        ("  // nothing", "line 1, column 1: it is empty"),
        ("1", "line 1, column 1: a rule answers with true or false, this with INT"),
        ("user.userId", "this with STRING"),
        ("user", "line 1, column 1: undeclared reference to 'user'"),
        ("true\n  && user.name == 'ada'", "line 2, column 10: undeclared reference to 'user.name'"),
        ("user.userId == 1", "line 1, column 13: found no matching overload"),
        ("true &&\n\n", "line 3, column 1: Syntax error"),
        ("true\n && é", "line 2, column 5: the character 'é' cannot stand here"),
        ("'a' == 'b", "line 1, column 8: this text has no end"),
        ("'\x00' == ''", "line 1, column 2: U+0000 cannot stand here"),
        ("'\ud800' == ''", "line 1, column 2: U+D800 cannot stand here"),
        ("'\u202e' == ''", "line 1, column 2: U+202E cannot stand here"),
        ("true\u2028", "line 1, column 5: the character U+2028 cannot stand here"),
    ],
)
def test_an_error_shows_line_and_column(source: str, place: str) -> None:
    """A3: what cannot be installed says where."""
    with pytest.raises(InvalidRequest) as caught:
        compile_rule(source, what="rules.lock.acquire")
    assert caught.value.message.startswith("rules.lock.acquire cannot be used: ")
    assert place in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "[1].all(x, true)",
        "[1].exists(x, true)",
        "[1].exists_one(x, true)",
        "[1].map(x, true) == [true]",
        "[1].filter(x, true) == [1]",
        "has(user.userId)",
        "dyn(1) == 1",
        "type(1) == int",
        "int('1') == 1",
        "string(1) == '1'",
        "timestamp('2026-01-01T00:00:00Z') == timestamp('2026-01-01T00:00:00Z')",
        "b'a' == b'a'",
        "1.0 == 1.0",
        "1u == 1u",
        "null == null",
        "{'a': 1} == {}",
        "google.protobuf.Struct{} == google.protobuf.Struct{}",
        "google.protobuf.Any{} == google.protobuf.Any{}",
        "int == int",
        "[true][0]",
        "1 / 0 == 1",
        "1 + 1 == 2",
        "-(1) == 1",
        "'a' < 'b'",
        "`user.userId` == 'a'",
        "isMemberOf('a')",
        "isMemberOf(1, 2)",
        "matches('a', record.key)",
        "record.key.matches(user.userId)",
        "(record.key + 'a').matches('a')",
        "'abc'.matches('a')",
        "record.key.matches('a' + 'b')",
        "record.key.matches('[')",
        "record.key.matches('(')",
        r"record.key.matches('\\pL')",
        "record.key.matches('(?i)a')",
        "record.key.matches('é')",
        "record.key.matches('a{65}')",
        "record.key.matches('(a{60}){60}')",
        "record.key.matches('[^a]{64}[^a]{64}[^a]{64}')",
        " && ".join(["record.key.matches('a')"] * 5),
        " && ".join(["record.key.matches('[a-f]{60}')"] * 3),
        f"'{'a' * MAX_SOURCE}' == ''",
        "true" + " && true" * (MAX_NODES // 2),
        "[" + "1," * (MAX_WORDS // 2) + "1] == []",
        "(" * 2000 + "true" + ")" * 2000,
        "record.key" + " + record.key" * 40 + " == ''",
    ],
)
def test_what_could_do_harm_cannot_be_installed(source: str) -> None:
    """A3, SEC8, C169: no macros, no division, no types but three, few patterns, and bounds on everything."""
    with pytest.raises(InvalidRequest):
        compile_rule(source)


def test_a_function_with_other_arguments_is_not_said_to_be_unknown() -> None:
    """A3: what the library calls undeclared is there, and wants two texts."""
    with pytest.raises(InvalidRequest, match="column 11: isMemberOf takes two texts, a group and its kind"):
        compile_rule("isMemberOf('ops')")


def test_limits_are_met_exactly() -> None:
    """SEC8: each bound lets its last value pass."""
    filler = MAX_SOURCE - len("'' != ''")
    assert says(f"'{'a' * filler}' != ''")
    assert says("true" + " && true" * (MAX_NODES // 2 - 1))
    assert says("[" + ", ".join(["1"] * 240) + "] == [] || true")
    assert says("!" * 60 + "true")
    assert says(" || ".join(["record.key.matches('^user:')"] * 4))
    assert steps_of("a{64}" * 3 + "(b|c){3}") <= MAX_STEPS


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 6),
        ("(ab){10}", 44),
        ("[a-z]+", 6),
        ("[]a]{2}", 11),
        ("[[:alpha:]]{2}", 25),
        (r"\d{2}", 7),
    ],
)
def test_a_pattern_counts_as_if_written_out(pattern: str, steps: int) -> None:
    """SEC8: a count in braces costs what it repeats."""
    assert steps_of(pattern) == steps


@given(st.text(alphabet="ab(){}[]\\^$.*+?|:,0123456789-pLdQ", max_size=60))
def test_no_pattern_is_slow(pattern: str) -> None:
    """SEC8: whatever passes the bound is compiled and matched in no time, or is an error at once."""
    try:
        if steps_of(pattern) > MAX_STEPS:
            return
    except ValueError:
        return
    rules._language().pattern_error(pattern)


class Answer:
    """A value of the library's, of any type."""

    def __init__(self, type_: Any, value: Any) -> None:
        self._type, self._value = type_, value

    def type(self) -> Any:
        return self._type

    def value(self) -> Any:
        return self._value


class Compiled:
    """An expression that gives what it was made with, or raises it."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def eval(self, activation: object) -> object:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_an_error_is_no_permission() -> None:
    """A3, C169: errors of the library are true in the eyes of Python, and deny all the same; their reason is kept."""
    language = rules._language()
    kinds = language.cel.Type
    for answer in (
        Answer(kinds.ERROR, "divide by zero"),
        Answer(kinds.STRING, "true"),
        Answer(kinds.INT, 1),
        Answer(kinds.DYN, True),
        Answer(kinds.UNKNOWN, True),
        RuntimeError("broken"),
        MemoryError(),
        RecursionError(),
    ):
        verdict = rules._CompiledRule(language, Compiled(answer), asks_groups=False).judge(ADA)
        assert verdict.allowed is False
        assert verdict.error
    for value in (1, "true", None, False):
        verdict = rules._CompiledRule(language, Compiled(Answer(kinds.BOOL, value)), asks_groups=False).judge(ADA)
        assert (verdict.allowed, verdict.error) == (False, None)
    assert rules._CompiledRule(language, Compiled(Answer(kinds.BOOL, True)), asks_groups=False).judge(ADA).allowed


def test_text_that_the_library_cannot_hold_denies() -> None:
    """A3: a key with half a surrogate pair, which no key can be, is an error and a denial."""
    verdict = compile_rule("record.key != 'a'").judge(replace(ADA, key="\ud800"))
    assert not verdict.allowed
    assert verdict.error


def test_a_rule_that_is_gone_denies() -> None:
    """A3: what stands for a missing or unusable rule says no."""
    assert not DenyAll().judge(ADA).allowed
    assert DenyAll("it went stale").judge(ADA).error == "it went stale"


@pytest.mark.parametrize(
    ("user", "key", "allowed"),
    [
        ("1", "user:1:a", True),
        ("1", "user:10:a", False),
        ("1", "user:1", False),
        ("1", "USER:1:a", False),
        ("1", "user:1%3Aa", False),
        ("10", "user:1:a", False),
        ("10", "user:10:a", True),
        ("", "user:1:a", False),
        ("1", " user:1:a", False),
    ],
)
def test_own_prefix_grants_no_more_than_that(user: str, key: str, allowed: bool) -> None:
    """C171: the example rule of the documentation lets a member into his own keys alone."""
    example = read_rule_file(next(block.body for block in blocks(PAGE) if block.language == "toml"))
    assert example.acquire == example.renew == OWN
    assert says(OWN, Asked(user, "member", key)) is allowed


def test_what_the_documentation_shows_can_be_installed() -> None:
    """A6: every rule of the cookbook, and every rule file."""
    shown = blocks(PAGE)
    assert len([compile_rule(block.body) for block in shown if block.language == "text"]) == 5
    assert len([read_rule_file(block.body) for block in shown if block.language == "toml"]) == 2
    bounds = (MAX_SOURCE // 1024, MAX_WORDS, MAX_NODES, MAX_DEPTH)
    words = "Bounds: {} KiB of text, {} words and signs, {} steps, {} levels.".format(*bounds)
    assert words in PAGE.read_text()


@given(st.binary(max_size=300))
def test_a_tree_that_cannot_be_read_is_said_so(serialized: bytes) -> None:
    """SEC8: whatever the library may give for a compiled rule, it is a tree or an error, never a crash."""
    try:
        tree = read_tree(serialized)
    except UnreadableTree:
        return
    assert sum(1 for _ in tree.walk())


def test_generated_rules_neither_kill_nor_hang_nor_grant() -> None:
    """A3, SEC8, issue 4: none of thousands kills its process, takes 50 ms or 10 MB, or answers what it must not.

    Every second one is right, with its answer known from the same expression in Python.
    """
    program = [sys.executable, "-W", "error", "-m", "tests.server.access.rule_expressions", "4", str(MANY)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60 + MANY / 50)
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["count"] / 2 <= report["taken"] < report["count"]
    assert report["slowest_ms"] < 50, report["slowest"]
    assert report["growth_mb"] < 10
