"""`leased config`: the rule set of a project as a file: installs it, fetches it, compares it, tries it out."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace

from leased.checks import shown
from leased.cli.administration import rule_place
from leased.cli.keys import pairs_of
from leased.cli.output import printable
from leased.cli.session import Session
from leased.cli.streams import write
from leased.errors import InvalidRequest
from leased.server.credentials import RuleSet
from leased.server.management import judge
from leased.server.rule_files import MAX_FILE, read_rule_file, write_rule_file
from leased.server.rules import Asked

DEFAULT_FILE = "leased-rules.toml"
"""The rule file, in the working directory, where none is named."""

_KIND = "rule-set/"
_DIFFERENT = _REFUSED = 1


def config(session: Session) -> int:
    """Do what the word after `config` says."""
    verbs = {"push": _push, "pull": _pull, "diff": _diff, "check": _check, "delete": _delete}
    return verbs[session.arguments.verb](session)


def _push(session: Session) -> int:
    """Install the rule set of the file."""
    rule_set = _from_file(session)
    rule_place(session).put(rule_set)
    session.output.record(
        {"ruleSet": rule_set.name, "installed": True}, [("rule set", rule_set.name), ("state", "installed")]
    )
    return 0


def _pull(session: Session) -> int:
    """Print the installed rule set as a file."""
    write(write_rule_file(_installed(session)))
    return 0


def _diff(session: Session) -> int:
    """Show what a push would change; 1 if it would change something."""
    mine, theirs = _from_file(session), rule_place(session).get()
    new = write_rule_file(mine).splitlines(keepends=True)
    old = [] if theirs is None else write_rule_file(theirs).splitlines(keepends=True)
    lines = [*difflib.unified_diff(old, new, fromfile="installed", tofile=_file(session))]
    write("".join(f"{printable(line.rstrip(chr(10)))}\n" for line in lines))
    return _DIFFERENT if lines else 0


def _delete(session: Session) -> int:
    """Delete the installed rule set: every member may take any key again."""
    name = _only(session)
    if name is None:
        raise InvalidRequest("which rule set?", hint="leased config delete --only rule-set/NAME")
    rule_place(session).delete(name)
    session.output.record({"ruleSet": name, "deleted": True}, [("rule set", name), ("state", "deleted")])
    return 0


def _check(session: Session) -> int:
    """Say what the rules of the file answer to a user who wants a key; 1 if that is no. It needs no service."""
    given, rule_set = session.arguments, _from_file(session)
    if given.user is None and given.key is None:
        session.output.record(
            {"ruleSet": rule_set.name, "valid": True}, [("rule set", rule_set.name), ("valid", "yes")]
        )
        return 0
    if given.user is None or given.key is None:
        raise InvalidRequest("rules are asked about a user and a key", hint="pass both --user ID and --key KEY")
    asked = Asked(given.user, given.role, given.key, frozenset(pairs_of(given.group)))
    found = judge(rule_set, asked)
    if given.operation is not None:
        found = {given.operation: found[given.operation]}
    session.output.record(
        {name: {"allowed": allowed, "reason": reason} for name, (allowed, reason) in found.items()},
        [(name, f"{'allowed' if allowed else 'refused'}: {reason}") for name, (allowed, reason) in found.items()],
    )
    return 0 if all(allowed for allowed, _ in found.values()) else _REFUSED


def _installed(session: Session) -> RuleSet:
    found, name = rule_place(session).get(), _only(session)
    if found is None or name not in {None, found.name}:
        raise InvalidRequest(
            "no rule set is installed" if found is None else f"the rule set is {found.name}, not {shown(name)}",
            hint="without one every member may take any key" if found is None else None,
        )
    return found


def _from_file(session: Session) -> RuleSet:
    """The rule set of the file, if it is the one that was asked for."""
    path, name = _file(session), _only(session)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_FILE + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", hint="name the rule file") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8") from error
    rule_set = read_rule_file(text)
    if name not in {None, rule_set.name}:
        raise InvalidRequest(f"{path} holds the rule set {rule_set.name}, not {shown(name)}")
    return replace(rule_set, project="")


def _file(session: Session) -> str:
    return os.fspath(session.arguments.file or DEFAULT_FILE)


def _only(session: Session) -> str | None:
    """The name in `--only rule-set/NAME`."""
    given: str | None = session.arguments.only
    if given is None:
        return None
    if not given.startswith(_KIND) or given == _KIND:
        raise InvalidRequest(
            f"--only {shown(given)!r} names nothing that can be configured", hint="write rule-set/NAME"
        )
    return given.removeprefix(_KIND)
