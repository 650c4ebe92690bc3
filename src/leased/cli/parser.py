"""The command line as a parser: which subcommands, options and exit statuses there are. It runs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import NoReturn

EXIT_STATUSES = (
    ("0", "done"),
    ("1", "refused or found wanting: not confirmed, not the expected fencing token, a failed check"),
    ("64", "the command line, a setting or a key cannot work"),
    ("69", "the store gave no answer, or cannot work here"),
    ("71", "the system refused, for instance another process"),
    ("74", "data could not be written"),
    ("75", "busy: somebody else holds the key"),
    ("76", "the lease was lost, or the handle does not hold the key"),
    ("77", "denied"),
    ("126, 127", "the command cannot be executed, was not found"),
    ("128+N", "ended by signal N"),
)
"""What a status means unless `leased run` passes on that of its command."""

PUT_DASHES = "put `--` and the command after the key and the options"
"""What `leased run` says to whoever left one of them out."""

ABOUT = "Exclusive, expiring claims on named keys: run a command under one, or look after them by hand."
EXAMPLE = "  leased run nightly-report -- ./build-report.sh"
"""What one types most, as the help shows it."""

_WITH_VALUE = ("--url", "--timeout")


class UsageError(Exception):
    """The command line cannot be understood; `usage` shows how it could be, `hint` what may have been meant."""

    def __init__(self, message: str, usage: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.usage = usage
        self.hint = hint


class Help(argparse.RawDescriptionHelpFormatter):
    """Help of a fixed width: the same everywhere, and made without looking for a terminal, which costs imports."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)
        self._action_max_length = len("    force-release")  # argparse measures commands without all of their indent


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` where `argparse` would end the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, with the usage of this subcommand."""
        raise UsageError(message, self.format_usage())

    def options(self) -> Collection[str]:
        """Every spelling of an option that it knows."""
        return self._option_string_actions.keys()


def build() -> Parser:
    """The whole command line; what it has read says in `parser` which of the parsers has."""
    parser = Parser(
        prog="leased",
        description=f"{ABOUT}\n\n{EXAMPLE}",
        epilog=_epilog(),
        formatter_class=Help,
        allow_abbrev=False,
        add_help=False,
    )
    parser.set_defaults(parser=parser)
    _add_common(parser, default=None)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=Parser, prog="leased"
    )
    _add_run(commands)
    _add_by_key(commands)
    _add_by_handle(commands)
    _add_store(commands)
    _add_serve(commands)
    _add_keys(commands)
    _add_config(commands)
    return parser


def _command(
    commands: argparse._SubParsersAction[Parser], name: str, *, summary: str, usage: str, epilog: str | None = None
) -> Parser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        usage=f"leased {name} {usage}",
        epilog=epilog,
        formatter_class=Help,
        allow_abbrev=False,
        add_help=False,
    )
    parser.set_defaults(parser=parser)
    _add_common(parser, default=argparse.SUPPRESS)
    return parser


def _add_common(parser: Parser, *, default: object) -> None:
    """Options that stand before or after the subcommand; after it they must not reset what stood before."""
    group = parser.add_argument_group("common options")
    group.add_argument("-h", "--help", action="help", help="show this and exit")
    group.add_argument("--url", default=default, help="the store (else LEASED_URL, leased.toml, a file of this user)")
    group.add_argument(
        "--json", action="store_true", default=default or False, help="print JSON lines even on a terminal"
    )
    group.add_argument("--timeout", metavar="TIME", default=default, help="limit of one call to the store (default 5s)")


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    run = _command(
        commands,
        "run",
        summary="run a command only while its key is held",
        usage="KEY [options] -- COMMAND [ARGUMENT…]",
        epilog=_RUN_EPILOG,
    )
    run.add_argument("key", metavar="KEY", nargs="?", help="what is locked")
    add = run.add_argument
    add("--ttl", metavar="TIME", help="length of the lease, renewed while the command runs (default: 30s, or 3 graces)")
    add("--wait", metavar="TIME", default="0", help="how long to wait for the key, or 'forever' (default: do not wait)")
    add("--owner", metavar="NAME", help="public name of this run; who comes with the same name takes the lease over")
    add("--hold-at-least", metavar="TIME", default="0", help="keep the key closed until the run is that old")
    add("--max-hold", metavar="TIME", help="end the command when the lease is that old, renewed or not")
    add("--lock-delay", metavar="TIME", default="0", help="keep the key closed that long after a lost lease")
    add("--enforce", action="store_true", help="do not renew: command and lease are over when the ttl is")
    add("--grace", metavar="TIME", help="time between TERM and KILL (default: 5s, or a third of the ttl if less)")
    add(
        "--on-busy",
        choices=("fail", "skip"),
        default="fail",
        help="skip: being busy is a success, told only on a terminal",
    )
    add("--exit-busy", metavar="N", default="75", help="exit status when the key is held by somebody else")
    add("--exit-lost", metavar="N", default="76", help="exit status when the lease was lost")


def _add_by_key(commands: argparse._SubParsersAction[Parser]) -> None:
    status = _command(commands, "status", summary="show who holds a key", usage="KEY")
    status.add_argument("key", metavar="KEY", nargs="?")
    listing = _command(commands, "list", summary="show the keys that are held or closed", usage="[--prefix TEXT]")
    listing.add_argument("--prefix", metavar="TEXT", default="", help="only keys that begin exactly like this")
    _add_top(commands)
    force = _command(
        commands,
        "force-release",
        summary="end a lease without its handle",
        usage="KEY [--fencing-token N] [--yes]",
        epilog="The work of the present holder goes on: others may run beside it. It shows what it is about to end\n"
        "and asks; where nobody can be asked it needs --yes. It ends the lease that it has shown, never its successor.",
    )
    force.add_argument("key", metavar="KEY")
    force.add_argument("--fencing-token", metavar="N", help="only if the lease has this fencing token")
    force.add_argument("--yes", action="store_true", help="do not ask")


def _add_top(commands: argparse._SubParsersAction[Parser]) -> None:
    top = _command(
        commands,
        "top",
        summary="watch the keys that are held or closed, live",
        usage="[--prefix TEXT] [--interval TIME] [--once]",
        epilog="Keys: arrows or j k move, / filters by the beginning of keys, s sorts, enter shows all of one key, f\n"
        "ends the lease that is shown (it asks first, and never ends its successor), p pauses, ? explains, q quits.\n"
        "It needs the package rich: pip install 'leased[cli]'. Without a terminal it prints what `leased list` prints.",
    )
    top.add_argument("--prefix", metavar="TEXT", default="", help="only keys that begin exactly like this")
    top.add_argument("--interval", metavar="TIME", help="time between two looks at the store (default 2s)")
    top.add_argument("--once", action="store_true", help="print one table and end, without rich")


def _add_by_handle(commands: argparse._SubParsersAction[Parser]) -> None:
    acquire = _command(
        commands,
        "acquire",
        summary="take a key now, or fail; prints the handle",
        usage="KEY [--ttl TIME] [--owner NAME]",
        epilog="Nobody renews this lease unless `leased renew` does. The handle is a secret: who has it can renew and\n"
        "release. Keep it in a variable, or in a file that only you can read:\n"
        "  (umask 077; leased acquire KEY > handle)",
    )
    acquire.add_argument("key", metavar="KEY")
    acquire.add_argument("--ttl", metavar="TIME", default="30s", help="length of the lease (default 30s)")
    acquire.add_argument("--owner", metavar="NAME", help="public name of the work")
    longer = "set a lease to a new length from now"
    renew = _command(commands, "renew", summary=longer, usage="KEY [--ttl TIME]", epilog=_handle_epilog("renew"))
    release = _command(
        commands, "release", summary="end a lease by its handle", usage="KEY", epilog=_handle_epilog("release")
    )
    for parser in (renew, release):
        parser.add_argument("key", metavar="KEY")
        parser.add_argument("--handle", metavar="TEXT", help="the handle; others can see arguments, so rather do not")
    renew.add_argument("--ttl", metavar="TIME", default="30s", help="length of the lease from now (default 30s)")


def _add_store(commands: argparse._SubParsersAction[Parser]) -> None:
    doctor = _command(commands, "doctor", summary="say in plain words what the store gives", usage="[URL]")
    verify = _command(
        commands,
        "verify",
        summary="run the contract checks of all stores on this one",
        usage="[URL]",
        epilog=(
            "It uses keys of its own and takes a minute or so. Run it on a new or unusual store first.\n"
            "Checks that need a clock which can be set, or a store that nobody else uses, are shown as `not run`."
        ),
    )
    schema = _command(
        commands,
        "schema",
        summary="print the statements that make the tables of an SQL store",
        usage="[URL]",
        epilog="A store makes its tables on first use if its role may. Where it may not, somebody who may runs these\n"
        "statements once; it then needs only the right to use the tables. Nothing is connected to.",
    )
    for parser in (doctor, verify, schema):
        parser.add_argument("place", metavar="URL", nargs="?", help="the store (like --url)")
    completion = _command(
        commands,
        "completion",
        summary="print a script that completes these commands",
        usage="bash|zsh|fish",
        epilog='  bash:  eval "$(leased completion bash)"\n'
        '  zsh:   eval "$(leased completion zsh)"\n'
        "  fish:  leased completion fish | source",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def _add_serve(commands: argparse._SubParsersAction[Parser]) -> None:
    serve = _command(
        commands,
        "serve",
        summary="serve the locks of a store over HTTP",
        usage="[--store URL] [--host ADDRESS] [--port N] [options]",
        epilog="Without a registry of credentials everybody who can connect may do everything: it then listens on a\n"
        "loopback address only. TERM and INT end it in order: nothing more is granted, waiters are told to ask\n"
        "elsewhere, leases stay as they are. Every setting can also be given as LEASED_SERVE_NAME.",
    )
    add = serve.add_argument
    add("--store", metavar="URL", dest="place", help="where locks are kept (like --url)")
    add("--host", metavar="ADDRESS", help="address to listen on (default 127.0.0.1)")
    add("--port", metavar="N", help="port to listen on (default 8370; 0: any free one)")
    add("--registry", metavar="PATH-OR-URL", help="where credentials, rules and the audit log are: see leased keys")
    add("--registry-key", metavar="FILE", help="file with the key of the hash of API keys, for a registry on a server")
    add("--insecure", action="store_true", help="serve any address without credentials: whoever connects may do all")
    add("--tls-certificate", metavar="FILE", help="PEM certificate: serve https")
    add("--tls-key", metavar="FILE", help="PEM key of the certificate, if it is in another file")
    add("--tls-client-authority", metavar="FILE", help="serve only clients with a certificate of this authority")
    add("--ui", metavar="WHAT", help="what the dashboard at /ui is for: off, read (default) or act")
    add("--log-requests", action="store_true", help="log each request as a line of JSON")


def _add_keys(commands: argparse._SubParsersAction[Parser]) -> None:
    keys = _command(
        commands,
        "keys",
        summary="make, list and end the API keys of a service",
        usage="create|list|revoke [ID] --registry PATH-OR-URL [options]",
        epilog="It works on the registry itself, also while services run: whoever may write it may do everything. It\n"
        "is an SQLite file, or postgresql://... or redis://... for replicas of a service; `create` makes it if there\n"
        "is none. A new key is shown once. Services follow within two seconds.\n"
        "  leased keys create --registry registry.db --kind member --name ada --group ops:team --expires 90d",
    )
    add = keys.add_argument
    add("verb", choices=("create", "list", "revoke"), help="what to do")
    add("id", metavar="ID", nargs="?", help="of the key to revoke")
    _add_registry(keys)
    add("--kind", choices=("member", "function", "service"), default="member", help="whom it is for (default member)")
    add("--name", metavar="NAME", help="the user id of a member, or what the function or service is called")
    _add_membership(keys)
    add("--scope", choices=("locks.manage", "full"), action="append", default=[], help="what a service may do")
    add("--expires", metavar="TIME", help="how long the key is valid, such as 90d (default: until it is revoked)")
    add("--print-hash", action="store_true", help="create: keep nothing, and print the entry of a registry file (TOML)")


def _add_config(commands: argparse._SubParsersAction[Parser]) -> None:
    config = _command(
        commands,
        "config",
        summary="install, fetch, compare and try access rules",
        usage="push|pull|diff|check|delete [FILE] [options]",
        epilog="A rule file is TOML, with [ruleSet] and [rules.lock]; the default is leased-rules.toml. It is for the\n"
        "service that --url names, with an API key in LEASED_API_KEY, or for a registry. `check` needs neither:\n"
        "  leased config check rules.toml --user ada --key user:ada:report\n"
        "  leased config push rules.toml --only rule-set/own-prefix",
    )
    add = config.add_argument
    add("verb", choices=("push", "pull", "diff", "check", "delete"), help="what to do")
    add("file", metavar="FILE", nargs="?", help="the rule file (default leased-rules.toml)")
    add("--only", metavar="rule-set/NAME", help="the rule set that is meant; another one is refused")
    _add_registry(config)
    add("--user", metavar="ID", help="check: who asks")
    add("--key", metavar="KEY", help="check: for which key")
    add("--operation", choices=("acquire", "renew"), help="check: only this operation decides the exit status")
    _add_membership(config)


def _add_registry(parser: Parser) -> None:
    add = parser.add_argument
    add("--registry", metavar="PATH-OR-URL", help="the registry, as for leased serve (or LEASED_SERVE_REGISTRY)")
    add("--registry-key", metavar="FILE", help="its key file (or LEASED_SERVE_REGISTRY_KEY)")
    add("--project", metavar="NAME", default="default", help="the project in the registry (default: default)")


def _add_membership(parser: Parser) -> None:
    add = parser.add_argument
    add("--role", choices=("owner", "admin", "member"), default="member", help="role of the member (default member)")
    add("--group", metavar="NAME:KIND", action="append", default=[], help="a group of the member; may be repeated")


def subcommand(arguments: Sequence[str]) -> str | None:
    """The word that names the subcommand, found without understanding anything else."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _handle_epilog(name: str) -> str:
    return (
        "The handle, as `leased acquire` printed it, is read from LEASED_HANDLE, else from standard input:\n"
        f"  leased {name} KEY < handle"
    )


_RUN_EPILOG = """\
The command is started without a shell, in a process group of its own, with LEASED_KEY, LEASED_FENCING_TOKEN and,
if --owner names one, LEASED_OWNER in its environment. LEASED_URL names the store of this run there, so that leased
inside the command finds the same one; a URL with a password in it is not passed on. Signals are passed on; a second
TERM, or the end of the grace period after the first, kills the whole group. When renewals fail the group gets TERM
early enough that KILL comes before the lease ends. Processes that the command has left in the background when it ends
go on without the lease.

The exit status is the command's (128+N if signal N killed it); 75 busy, 76 lost, 64 usage, 69 store unavailable,
77 denied, 126 and 127 if the command cannot be started.

What it cannot do: while it is itself stopped (SIGSTOP, a frozen container) it stops nothing. Let writes carry
LEASED_FENCING_TOKEN where an old run could do harm."""


def _epilog() -> str:
    width = max(len(status) for status, _ in EXIT_STATUSES)
    statuses = "\n".join(f"  {status.ljust(width)}  {meaning}" for status, meaning in EXIT_STATUSES)
    return (
        f"exit statuses:\n{statuses}\n\n"
        "Times are seconds or text such as 90s, 1m30s, 250ms. Data goes to standard output, as a table on a terminal\n"
        "and as JSON lines in a pipe; talk goes to standard error. `leased COMMAND --help` says more."
    )
