"""Access rules: what cannot be a rule is refused, and whatever else is not `true` denies."""

from fuzz.given import parts_of, text_of
from leased.errors import InvalidRequest
from leased.server.rules import Asked, DenyAll, compile_rule


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised; a rule answers, an error never allows, and its opposite never allows as well."""
    source, user, key = (text_of(part) for part in parts_of(data, 3))
    asked = Asked(user or "u", "member", key or "k", frozenset({("ops", "team")}))
    assert not DenyAll().judge(asked).allowed
    try:
        rule = compile_rule(source)
    except InvalidRequest as error:
        assert "\n" not in error.message
        return
    verdict = rule.judge(asked)
    assert type(verdict.allowed) is bool
    assert not (verdict.allowed and verdict.error)
    try:
        opposite = compile_rule(f"!({source}\n)").judge(asked)
    except InvalidRequest:
        return  # it has become too long or too deep
    assert not (verdict.allowed and opposite.allowed)
