"""`leased completion`: a script for bash, zsh or fish, made from the parser itself. It reads no store."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from leased.cli.parser import build
from leased.cli.session import Session
from leased.cli.streams import write


@dataclass(frozen=True, slots=True)
class Option:
    """An option as a shell sees it: its spellings, whether a value follows, which values there are."""

    names: tuple[str, ...]
    summary: str
    takes_value: bool
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand with its options, and the words that may stand in its first place."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def completion(session: Session) -> int:
    """Print the script for the shell that was named."""
    scripts = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    write("\n".join(scripts[session.arguments.shell](*_read(build()))) + "\n")
    return 0


def _read(parser: argparse.ArgumentParser) -> tuple[tuple[Option, ...], tuple[Subcommand, ...]]:
    """The options of the whole command, and its subcommands."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    summaries = {pseudo.dest: pseudo.help or "" for pseudo in found[0]._choices_actions}
    subcommands = tuple(
        Subcommand(name, summaries.get(name, ""), _options(inner), _words(inner))
        for name, inner in found[0].choices.items()
    )
    return _options(parser), subcommands


def _options(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    return tuple(
        Option(tuple(action.option_strings), action.help or "", action.nargs != 0, _values(action))
        for action in parser._actions
        if action.option_strings
    )


def _words(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    return tuple(word for action in parser._actions if not action.option_strings for word in _values(action))


def _values(action: argparse.Action) -> tuple[str, ...]:
    return tuple(str(value) for value in action.choices or ())


def _names(options: tuple[Option, ...]) -> str:
    return " ".join(name for option in options for name in option.names)


def _bash(common: tuple[Option, ...], subcommands: tuple[Subcommand, ...]) -> Iterator[str]:
    """After `run … --` other commands are completed by their own rules."""
    yield "_leased() {"
    yield "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= at words="
    yield "    COMPREPLY=()"
    yield "    for ((at = 1; at < COMP_CWORD; at++)); do"
    yield "        case ${COMP_WORDS[at]} in"
    yield "            --url|--timeout) ((at++)) ;;"
    yield "            --) if [[ $command == run ]]; then _leased_other $((at + 1)); return; fi ;;"
    yield "            -*) ;;"
    yield "            *) command=${command:-${COMP_WORDS[at]}} ;;"
    yield "        esac"
    yield "    done"
    yield '    case "$command $before" in'
    for subcommand in subcommands:
        for option in subcommand.options:
            for name in option.names if option.takes_value else ():
                yield f'        "{subcommand.name} {name}") words="{" ".join(option.values)}" ;;'
    yield "        *) case $command in"
    yield f'            "") words="{" ".join(each.name for each in subcommands)} {_names(common)}" ;;'
    for subcommand in subcommands:
        words = " ".join([*subcommand.words, _names(subcommand.options)])
        yield f'            {subcommand.name}) words="{words}" ;;'
    yield "        esac ;;"
    yield "    esac"
    yield '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")'
    yield "}"
    yield "_leased_other() {"
    yield "    if declare -F _command_offset >/dev/null; then _command_offset $1"
    yield '    elif ((COMP_CWORD == $1)); then mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")'
    yield '    else mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"); fi'
    yield "}"
    yield "complete -F _leased leased"


def _zsh(common: tuple[Option, ...], subcommands: tuple[Subcommand, ...]) -> Iterator[str]:
    yield "#compdef leased"
    yield "_leased() {"
    yield "    local curcontext=$curcontext state line"
    yield f"    _arguments -C {' '.join(_zsh_options(common))} '1: :->command' '*:: :->rest'"
    yield "    case $state in"
    yield "        command) local -a commands; commands=("
    for subcommand in subcommands:
        yield f"            {shlex.quote(f'{subcommand.name}:{subcommand.summary}')}"
    yield "            ); _describe command commands ;;"
    yield "        rest) case $line[1] in"
    for subcommand in subcommands:
        place = f"'1: :({' '.join(subcommand.words)})'" if subcommand.words else "'1: :'"
        yield f"            {subcommand.name})"
        if subcommand.name == "run":  # after `--` another command is completed by its own rules
            yield "                local -i at=$words[(i)--]"
            yield "                if ((at < CURRENT)); then"
            yield '                    words=("${(@)words[at+1,-1]}"); ((CURRENT -= at)); _normal; return'
            yield "                fi"
        yield f"                _arguments {' '.join(_zsh_options(subcommand.options))} {place} ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"
    yield "compdef _leased leased"


def _zsh_options(options: tuple[Option, ...]) -> Iterator[str]:
    for option in options:
        summary = option.summary.replace("[", "(").replace("]", ")").replace(":", "\\:")
        value = f": :({' '.join(option.values)})" if option.takes_value else ""
        for name in option.names:
            yield shlex.quote(f"{name}[{summary}]{value}")


def _fish(common: tuple[Option, ...], subcommands: tuple[Subcommand, ...]) -> Iterator[str]:
    yield "complete -c leased -f"
    for subcommand in subcommands:
        name, summary = subcommand.name, shlex.quote(subcommand.summary)
        yield f"complete -c leased -n __fish_use_subcommand -a {name} -d {summary}"
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        if subcommand.words:
            yield f"complete -c leased {condition} -a '{' '.join(subcommand.words)}'"
        yield from (f"complete -c leased {condition} {words}" for words in _fish_options(subcommand.options))
    yield from (f"complete -c leased -n __fish_use_subcommand {words}" for words in _fish_options(common))
    behind = "__fish_seen_subcommand_from run; and contains -- -- (commandline -opc)"
    rest = "$words[(math (contains -i -- -- $words) + 1)..]"
    others = f'set -l words (commandline -opc) (commandline -ct); complete -C (string join " " -- {rest})'
    yield f"complete -c leased -n '{behind}' -a '({others})'"


def _fish_options(options: tuple[Option, ...]) -> Iterator[str]:
    for option in options:
        long = " ".join(f"-l {name[2:]}" for name in option.names if name.startswith("--"))
        short = " ".join(f"-s {name[1:]}" for name in option.names if not name.startswith("--"))
        value = f" -x -a '{' '.join(option.values)}'" if option.takes_value else ""
        yield f"{' '.join(filter(None, [short, long]))}{value} -d {shlex.quote(option.summary)}"
