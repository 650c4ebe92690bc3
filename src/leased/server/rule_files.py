"""Rule sets as people keep them: TOML files, read strictly and written back the same. It reads and writes no file."""

from __future__ import annotations

import tomllib
from typing import Any

from leased.checks import shown
from leased.errors import InvalidRequest
from leased.server.credentials import RuleSet, check_name, check_rule_set
from leased.wire import Body

RESOURCE = "lock"
"""What rules are about; the only thing there is."""

OPERATIONS = ("acquire", "renew")
"""What a rule set can have a rule for."""

MAX_FILE = 65_536
"""Bytes of a rule file."""

_SHAPE = 'a rule file has [ruleSet] with name and resourceType = "lock", and [rules.lock] with acquire and renew'


def read_rule_file(text: str, *, project: str = "") -> RuleSet:
    """The rule set in a file, checked. Raises `InvalidRequest` that names the place."""
    if len(text) > MAX_FILE:
        raise InvalidRequest(f"the rule file has more than {MAX_FILE} characters", hint="put members into groups")
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the rule file is not TOML: {error}", hint=_SHAPE) from None
    return read_rule_set(found, project=project)


def read_rule_set(found: object, *, project: str = "") -> RuleSet:
    """The rule set in a document of the shape of a rule file, checked. Raises `InvalidRequest`."""
    top = _table(found, "the rule file", known=("ruleSet", "rules"))
    about = _table(top.get("ruleSet"), "ruleSet", known=("name", "resourceType"))
    rules = _table(top.get("rules", {}), "rules", known=(RESOURCE,))
    sources = _table(rules.get(RESOURCE, {}), f"rules.{RESOURCE}", known=OPERATIONS)
    kind = about.get("resourceType")
    if kind != RESOURCE:
        raise InvalidRequest(f"ruleSet.resourceType is {shown(kind)}, not {RESOURCE!r}", hint=_SHAPE)
    for operation, source in sources.items():
        if not isinstance(source, str):
            raise InvalidRequest(f"rules.{RESOURCE}.{operation} is no text", hint=_SHAPE)
    name = check_name(about.get("name"), what="rule set")
    return check_rule_set(RuleSet(project, name, sources.get("acquire"), sources.get("renew")))


def write_rule_set(rule_set: RuleSet) -> Body:
    """The same as a document."""
    rules = {"acquire": rule_set.acquire, "renew": rule_set.renew}
    return {
        "ruleSet": {"name": rule_set.name, "resourceType": RESOURCE},
        "rules": {RESOURCE: {name: source for name, source in rules.items() if source is not None}},
    }


def write_rule_file(rule_set: RuleSet) -> str:
    """The same as a file."""
    lines = ["[ruleSet]", f"name = {_quoted(rule_set.name)}", f"resourceType = {_quoted(RESOURCE)}", ""]
    lines.append(f"[rules.{RESOURCE}]")
    for name, source in (("acquire", rule_set.acquire), ("renew", rule_set.renew)):
        if source is not None:
            lines.append(f"{name} = {_text(source)}")
    return "\n".join(lines) + "\n"


def _table(found: object, name: str, *, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidRequest(f"{name} is no table", hint=_SHAPE)
    unknown = [key for key in found if key not in known]
    if unknown:
        raise InvalidRequest(f"{name} has {shown(unknown[0])!r}, which is not known", hint=_SHAPE)
    return found


def _text(source: str) -> str:
    """A rule as TOML: as it is, over several lines, where no escape is needed; else quoted."""
    plain = all(c.isprintable() or c in "\n\t" for c in source) and "'''" not in source and not source.endswith("'")
    if "\n" in source and plain:
        return f"'''\n{source}'''"
    return f"'{source}'" if plain and "'" not in source else _quoted(source)


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else f"\\U{ord(c):08X}") for c in text) + '"'
