"""Makes access rules: right ones with what they must answer, and hostile ones. Run as a program it tries them all.

A process of its own is what shows that no rule can kill, stop or bloat the service. It prints one line of JSON.
"""

import json
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from leased.errors import InvalidRequest
from leased.server.rules import Asked, Rule, compile_rule

WORDS = ["", "user:", "user:1:", "a", "ops", "team", "1", "10", "member", "é", "%3A", "\\n", "\n", "x" * 60]
KEYS = ["user:1:a", "user:10:a", "user:1", "USER:1:a", "a", "ops", "é", "x" * 255, "中" * 255, "a.b-c_d", "%"]
PATTERNS = ["^user:[0-9]+:", "a", "", "^$", ".*", "[a-z]{1,8}", "(ops|team)+", "\\\\d+", "(a*)*b", "(x+x+)+y"]
BAD_PATTERNS = ["[", "(", "*", "(?i)a", "\\\\pL", "a{1000}", "(a{60}){60}", "[[:foo:]]", "\\\\Q", "a**", "{", "a{2,1}"]
SIGNS = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    "?",
    ":",
    "!",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    ">",
    "+",
    "-",
    "*",
    "/",
    "%",
    "in",
    "true",
    "false",
    "null",
    "'",
    '"',
    "`",
    "@",
    "\\",
    "//",
    "\n",
    "\x00",
    "é",
    "�",
]
NAMES = [
    "user",
    "user.userId",
    "user.role",
    "record.key",
    "record",
    "isMemberOf",
    "startsWith",
    "matches",
    "size",
    "has",
]
CALLS = [
    "all",
    "exists",
    "map",
    "filter",
    "exists_one",
    "dyn",
    "type",
    "int",
    "bytes",
    "timestamp",
    "google.protobuf.Any",
]


SUSPICIOUS = 0.02
TOO_MUCH = ("steps are allowed", "signs are allowed", "bytes; ", "steps; ", "levels")


@dataclass(frozen=True, slots=True)
class Example:
    """A rule and what it must answer for the request; `None`: it may be refused, and if not, any answer will do."""

    source: str
    asked: Asked
    expected: bool | None


def quoted(text: str) -> str:
    """A text as CEL spells it."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


Value = Callable[[Asked], Any]


class Maker:
    """Expressions of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def asked(self) -> Asked:
        """A request."""
        pick = self.chance.choice
        groups = {(pick(["ops", "dev"]), pick(["team", "squad"])) for _ in range(self.chance.randrange(3))}
        return Asked(pick(["1", "10", "ada", "é"]), pick(["member", "admin", "owner"]), pick(KEYS), frozenset(groups))

    def text(self, levels: int) -> tuple[str, Value]:
        """An expression that gives a text, and the same in Python."""
        kind = self.chance.randrange(6 if levels else 4)
        if kind == 0:
            word = self.chance.choice(WORDS)
            return quoted(word), lambda _: word
        if kind == 1:
            return "user.userId", lambda asked: asked.user_id
        if kind == 2:
            return "user.role", lambda asked: asked.role
        if kind == 3:
            return "record.key", lambda asked: asked.key
        left, right = self.text(levels - 1), self.text(levels - 1)
        if kind == 4:
            return f"({left[0]} + {right[0]})", lambda asked: left[1](asked) + right[1](asked)
        test = self.truth(levels - 1)
        source = f"({test[0]} ? {left[0]} : {right[0]})"
        return source, lambda asked: left[1](asked) if test[1](asked) else right[1](asked)

    def truth(self, levels: int) -> tuple[str, Value]:
        """An expression that gives true or false, and the same in Python."""
        chance = self.chance
        if levels == 0 or chance.random() < 0.1:
            constant = chance.random() < 0.5
            return ("true" if constant else "false"), lambda _: constant
        one, other = self.text(levels - 1), self.text(levels - 1)
        match chance.randrange(10):
            case 0:
                return f"{one[0]}.startsWith({other[0]})", lambda asked: one[1](asked).startswith(other[1](asked))
            case 1:
                return f"{one[0]}.endsWith({other[0]})", lambda asked: one[1](asked).endswith(other[1](asked))
            case 2:
                return f"{one[0]}.contains({other[0]})", lambda asked: other[1](asked) in one[1](asked)
            case 3:
                equal = chance.random() < 0.5
                sign = "==" if equal else "!="
                return f"{one[0]} {sign} {other[0]}", lambda asked: (one[1](asked) == other[1](asked)) is equal
            case 4:
                return f"size({one[0]}) == {len(one[0])}", lambda asked: len(one[1](asked)) == len(one[0])
            case 5:
                many = [self.text(levels - 1) for _ in range(chance.randrange(4))]
                listed = ", ".join(source for source, _ in many)
                return f"{one[0]} in [{listed}]", lambda asked: one[1](asked) in [value(asked) for _, value in many]
            case 6:
                group = (chance.choice(["ops", "dev", "x"]), chance.choice(["team", "squad", ""]))
                call = f"isMemberOf({quoted(group[0])}, {quoted(group[1])})"
                return call, lambda asked: group in asked.groups
            case 7:
                test = self.truth(levels - 1)
                return f"!({test[0]})", lambda asked: not test[1](asked)
            case kind:
                left, right = self.truth(levels - 1), self.truth(levels - 1)
                if kind == 8:
                    return f"({left[0]} && {right[0]})", lambda asked: left[1](asked) and right[1](asked)
                return f"({left[0]} || {right[0]})", lambda asked: left[1](asked) or right[1](asked)

    def right(self) -> Example:
        """A rule that must be taken, with its answer."""
        source, value = self.truth(self.chance.randrange(1, 6))
        asked = self.asked()
        return Example(source, asked, value(asked))

    def hostile(self) -> Example:
        """A rule that somebody wrote who wants to do harm, or cannot write."""
        chance = self.chance
        match chance.randrange(7):
            case 0:  # words and signs in any order
                source = " ".join(chance.choice(SIGNS + NAMES + CALLS + WORDS) for _ in range(chance.randrange(1, 200)))
            case 1:  # a right one with a fault
                source = self.right().source
                for _ in range(chance.randrange(1, 4)):
                    at = chance.randrange(len(source) + 1)
                    source = source[:at] + chance.choice(SIGNS + NAMES) + source[at + chance.randrange(3) :]
            case 2:  # deep
                left, right = chance.choice(
                    [("(", ")"), ("[", "]"), ("!(", ")"), ("size(", ")"), ("{1:", "}"), ("!", "")]
                )
                many = chance.randrange(1, 3000)
                source = left * many + "true" + right * (many + chance.randrange(-1, 2))
            case 3:  # long
                one = chance.choice(["true", "record.key", "'a'", "1", "[1]", "record.key.matches('a')"])
                source = one + (
                    chance.choice(["&&", "||", "+", "==", " in ", ",", "?", ":", "."]) + one
                ) * chance.randrange(900)
            case 4:  # patterns
                body = "".join(chance.choice(PATTERNS + BAD_PATTERNS) for _ in range(chance.randrange(1, 4)))
                source = " || ".join(
                    [f"record.key.matches('{body}{{0,{chance.randrange(999)}}}')"] * chance.randrange(1, 7)
                )
            case 5:  # what other rules may do
                call = chance.choice(CALLS)
                source = f"[1, 2, 3].{call}(x, {call}(x, x > 1)) == {call}({self.text(2)[0]})"
            case _:  # anything
                source = "".join(
                    chr(chance.choice([chance.randrange(128), chance.randrange(0x11000)])) for _ in range(400)
                )
        return Example(source, self.asked(), None)


def try_one(example: Example) -> tuple[Rule | None, str, float]:
    """The rule, or why it was refused, and the seconds that the slower one of compiling and asking has cost."""
    rule, refusal = None, ""
    started = time.thread_time()
    try:
        rule = compile_rule(example.source)
    except InvalidRequest as error:
        refusal = error.message
    compiled = time.thread_time()
    if rule is not None:
        rule.judge(example.asked)
    return rule, refusal, max(compiled - started, time.thread_time() - compiled)


def try_all(seed: int, count: int) -> dict[str, Any]:
    """Compile and ask so many rules, half of them hostile; tells the wrong answers, the slowest and the growth."""
    maker = Maker(seed)
    wrong: list[dict[str, Any]] = []
    slowest, taken, errors, before = (0.0, ""), 0, 0, 0
    for number in range(count):
        example = maker.right() if number % 2 else maker.hostile()
        rule, refusal, cost = try_one(example)
        for _ in range(3):
            if cost > SUSPICIOUS:  # what was slow by chance is not slow again
                cost = min(cost, try_one(example)[2])
        slowest = max(slowest, (cost, example.source))
        if refusal and example.expected is not None and not any(word in refusal for word in TOO_MUCH):
            wrong.append({"source": example.source, "refused": refusal})
        if rule is not None:
            taken += 1
            verdict = rule.judge(example.asked)
            errors += verdict.error is not None
            if (verdict.error and verdict.allowed) or example.expected not in {None, verdict.allowed}:
                wrong.append({"source": example.source, "asked": repr(example.asked), "verdict": repr(verdict)})
            rule.judge(replace(example.asked, key="\ud800"))  # text that the library cannot hold
        if number == min(500, count // 2):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {
        "count": count,
        "taken": taken,
        "errors": errors,
        "wrong": wrong[:5],
        "slowest_ms": round(slowest[0] * 1000, 2),
        "slowest": slowest[1][:300].encode(errors="replace").decode(),
        "growth_mb": round(growth, 1),
    }


if __name__ == "__main__":
    print(json.dumps(try_all(int(sys.argv[1]), int(sys.argv[2]))))
