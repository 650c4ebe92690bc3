"""Access rules: one CEL expression says whether a member may take or renew a key; whatever is not `true` denies.

The language is a small part of CEL: texts, `true` and `false`, whole numbers, lists, comparison, `&&`, `||`, `!`,
`? :`, `in`, joining texts, a few functions, and four things about the request. It has no macros, so no loops. A rule is
checked, typed and bounded when it is installed; later nothing about it can fail but to a denial.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from leased.errors import InvalidRequest, StoreNotUsable
from leased.server.rule_patterns import MAX_STEPS, steps_of
from leased.server.rule_trees import Node, UnreadableTree, read_tree

MAX_SOURCE = 4096
"""Bytes of a rule as UTF-8."""

MAX_WORDS = 512
"""Words and signs of a rule: the parser's work."""

MAX_NODES = 256
"""Steps of a compiled rule: the work of evaluating it."""

MAX_DEPTH = 32
"""Levels of a compiled rule; the parser has the same limit."""

MAX_PATTERNS = 4
"""Calls of `matches` in a rule."""

VARIABLES = ("user.userId", "user.role", "record.key")

FUNCTIONS = ("startsWith", "endsWith", "contains", "matches", "size")
"""Those of CEL that a rule may call; besides there is `isMemberOf(group, kind)`."""

_OPERATORS = ("_==_", "_!=_", "_&&_", "_||_", "!_", "_?_:_", "@in")
_CONFIGURATION = f"""
stdlib:
  exclude_macros: [all, exists, exists_one, map, filter, has]
  include_functions:
    - name: "_+_"
      overloads: [{{id: add_string}}]
{"".join(f'    - name: "{name}"' + chr(10) for name in (*_OPERATORS, *FUNCTIONS))}
"""
_WORD = re.compile(
    r"""
    (?P<space> [ \t\r\n]+ | //[^\n]* )
  | (?P<text> [rR]? (?: \"\"\" (?:\\.|[^\\])*? \"\"\" | ''' (?:\\.|[^\\])*? ''' ) )
  | (?P<line> [rR]? (?: " (?:\\.|[^"\\\n])* " | ' (?:\\.|[^'\\\n])* ' ) )
  | (?P<word> [A-Za-z_0-9]+ )
  | (?P<sign> && | \|\| | [=!<>]= | [-+*/%!?:.,<>()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMPLAINT = re.compile(r"^(?:INVALID_ARGUMENT: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
_WHAT_IT_IS = "a rule answers with true or false"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rule may know: who wants which key. `groups` holds pairs of group and kind."""

    user_id: str
    role: str
    key: str
    groups: frozenset[tuple[str, str]] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says. `error` is why it could not say anything, for administrators alone."""

    allowed: bool
    error: str | None = None


class Rule(Protocol):
    """A rule that can be asked."""

    def judge(self, asked: Asked) -> Verdict:
        """Whether this may be. Never raises, never waits."""
        ...


class DenyAll:
    """The rule that nobody wrote, and the rule that cannot be used any more."""

    def __init__(self, error: str | None = None) -> None:
        self._verdict = Verdict(allowed=False, error=error)

    def judge(self, asked: Asked) -> Verdict:
        """See `Rule`: no."""
        return self._verdict


def compile_rule(source: str, *, what: str = "the rule") -> Rule:
    """A rule that can be asked, from its text. Raises `InvalidRequest` with line and column for what cannot be one."""
    _check_words(source, what)
    language = _language()
    try:
        compiled = language.environment.compile(source)
    except (RuntimeError, ValueError, TypeError) as error:
        raise _refused(what, _complaints(str(error))) from None
    try:
        tree = read_tree(compiled.serialize())
    except UnreadableTree as error:
        raise StoreNotUsable(f"{what} cannot be bounded: {error}", hint="install another cel-expr-python") from error
    _check_tree(tree, source=source, what=what)
    if compiled.return_type() != language.cel.Type.BOOL:
        raise _refused(what, [f"line 1, column 1: {_WHAT_IT_IS}, this with {compiled.return_type().name()}"])
    groups = any(node.shape == "call" and node.text == "isMemberOf" for node in tree.walk())
    return _CompiledRule(language, compiled, asks_groups=groups)


class _CompiledRule:
    def __init__(self, language: _Language, compiled: Any, *, asks_groups: bool) -> None:
        self._language = language
        self._compiled = compiled
        self._asks_groups = asks_groups

    def judge(self, asked: Asked) -> Verdict:
        """See `Rule`. Errors of the library are values with a type of their own, and true in the eyes of Python."""
        language = self._language
        data = {"user.userId": asked.user_id, "user.role": asked.role, "record.key": asked.key}
        try:
            functions = [language.membership(asked.groups)] if self._asks_groups else None
            value = self._compiled.eval(language.environment.Activation(data, functions=functions))
            answer = value.value()
            if value.type() == language.cel.Type.BOOL:
                return Verdict(allowed=answer is True)
            return Verdict(allowed=False, error=f"it gave {value.type().name()}: {answer}")
        except Exception as error:  # noqa: BLE001  # whatever it is, it is no permission
            return Verdict(allowed=False, error=f"it failed: {error}")


@dataclass(frozen=True, slots=True)
class _Language:
    """The library, set up with what rules may use."""

    cel: Any
    environment: Any
    probe: Any

    def membership(self, groups: frozenset[tuple[str, str]]) -> Any:
        """The function `isMemberOf` for one member, whose groups are known before it is called."""
        kinds = self.cel.Type

        def is_member_of(group: str, kind: str) -> bool:
            return (group, kind) in groups

        return self.cel.Function("isMemberOf", [kinds.STRING, kinds.STRING], False, is_member_of, kinds.BOOL)  # noqa: FBT003  # the library's own signature

    def pattern_error(self, pattern: str) -> str | None:
        """What the library has to say against a regular expression."""
        value = self.probe.eval(self.environment.Activation({"record.key": pattern}))
        return None if value.type() == self.cel.Type.BOOL else str(value.value()).partition(": ")[2]


@functools.cache
def _language() -> _Language:
    try:
        from cel_expr_python import cel  # type: ignore[import-untyped]
    except ImportError as error:
        raise StoreNotUsable(
            "access rules need the package cel-expr-python", hint="pip install 'leased[server]'"
        ) from error
    kinds = cel.Type
    overload = cel.Overload("is_member_of", return_type=kinds.BOOL, parameters=[kinds.STRING, kinds.STRING])
    environment = cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_CONFIGURATION),
        variables=dict.fromkeys(VARIABLES, kinds.STRING),
        extensions=[cel.CelExtension("leased", [cel.FunctionDecl("isMemberOf", [overload])])],
    )
    return _Language(cel, environment, environment.compile("''.matches(record.key)"))


def _check_words(source: str, what: str) -> None:
    """Bound the text before the parser sees it: it would spend a tenth of a second on 4 KiB of nonsense."""
    size = len(source.encode(errors="replace"))
    if size > MAX_SOURCE:
        raise InvalidRequest(f"{what} has {size} bytes; {MAX_SOURCE} are allowed", hint="put members into groups")
    at = count = 0
    while at < len(source):
        found = _WORD.match(source, at)
        if found is None:
            begins = source[at] in "\"'"
            said = "this text has no end" if begins else f"the character {_name(source[at])} cannot stand here"
            raise _refused(what, [f"{_place(source, at)}: {said}"])
        bad = next((n for n, sign in enumerate(found[0]) if not sign.isprintable() and sign not in " \t\r\n"), None)
        if bad is not None:
            raise _refused(what, [f"{_place(source, at + bad)}: {_name(found[0][bad])} cannot stand here; escape it"])
        count += found.lastgroup != "space"
        if count > MAX_WORDS:
            raise _refused(what, [f"{_place(source, at)}: {MAX_WORDS} words and signs are allowed"])
        at = found.end()
    if not count:
        raise _refused(what, ["line 1, column 1: it is empty"])


def _check_tree(tree: Node, *, source: str, what: str) -> None:
    """Bound the work: nodes, levels, kinds of values and regular expressions."""
    nodes = list(tree.walk())
    if len(nodes) > MAX_NODES:
        raise _refused(what, [f"line 1, column 1: it has {len(nodes)} steps; {MAX_NODES} are allowed"])
    if tree.depth() > MAX_DEPTH:
        raise _refused(what, [f"line 1, column 1: it has {tree.depth()} levels; {MAX_DEPTH} are allowed"])
    for node in nodes:
        if node.shape == "other" or (node.shape == "name" and node.text not in VARIABLES):
            said = "only texts, whole numbers, true, false and lists can be used here"
            raise _refused(what, [f"{_place(source, node.offset)}: {said}"])
    _check_patterns([node for node in nodes if node.text == "matches" and node.shape == "call"], source, what=what)


def _check_patterns(calls: Sequence[Node], source: str, *, what: str) -> None:
    if len(calls) > MAX_PATTERNS:
        said = f"matches can be called {MAX_PATTERNS} times, not {len(calls)}"
        raise _refused(what, [f"{_place(source, calls[MAX_PATTERNS].offset)}: {said}"])
    steps = 0
    for call in calls:
        place, pattern = _place(source, call.offset), call.inner[-1]
        if call.inner[0].shape != "name":  # a longer text could cost a pattern a tenth of a second
            raise _refused(what, [f"{place}: matches can be asked of {', '.join(VARIABLES)} alone"])
        if pattern.shape != "text":
            raise _refused(what, [f"{place}: the pattern of matches is a text that stands in the rule itself"])
        try:
            steps += steps_of(pattern.text)
        except ValueError as error:
            raise _refused(what, [f"{place}: in a pattern, {error}"]) from None
        if steps > MAX_STEPS:
            said = f"patterns have {MAX_STEPS} characters in all, with counts written out"
            raise _refused(what, [f"{place}: {said}"])
        problem = _language().pattern_error(pattern.text)
        if problem is not None:
            raise _refused(what, [f"{place}: {problem}"])


def _refused(what: str, complaints: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(f"{what} cannot be used: {'; '.join(complaints)}", hint=f"{_WHAT_IT_IS} about {_KNOWN}")


_KNOWN = f"{', '.join(VARIABLES)} and isMemberOf(group, kind), with {', '.join(FUNCTIONS)}"


def _complaints(text: str) -> list[str]:
    """What the library says, at most three things, with the places it knows."""
    found = list(dict.fromkeys(_COMPLAINT.findall(text)))
    if not found:
        deep = "recursion" in text
        return ["line 1, column 1: " + (f"it has more than {MAX_DEPTH} levels" if deep else _shortened(text))]
    return [
        f"line {max(int(line), 1)}, column {max(int(column), 1)}: {_shortened(said)}"
        for line, column, said in dict.fromkeys(found[:3])
    ]


def _shortened(text: str) -> str:
    plain: Callable[[str], str] = lambda c: c if c.isprintable() else " "  # noqa: E731
    said = text.replace(" (in container '')", "").removesuffix(" [INVALID_ARGUMENT]")
    if said == "undeclared reference to 'isMemberOf'":  # what the library says of a function with other arguments
        said = "isMemberOf takes two texts, a group and its kind"
    return "".join(map(plain, said))[:200]


def _name(character: str) -> str:
    return f"U+{ord(character):04X}" if not character.isprintable() or character.isspace() else repr(character)


def _place(source: str, offset: int | None) -> str:
    """Line and column, counted from one, of a place in the source."""
    before = source[: offset or 0]
    return f"line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"
