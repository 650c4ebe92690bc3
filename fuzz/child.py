"""The process that atheris runs one target in; `fuzz.__main__` starts it."""

import sys
from importlib import import_module
from typing import Any

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

from fuzz.targets import MODULES, property_of


def main() -> None:
    """Feed the target until the time is over or its property breaks."""
    name = sys.argv.pop(1)
    fuzzer: Any = atheris  # it has no types
    with fuzzer.instrument_imports(include=list(MODULES[name]), enable_loader_override=False):
        for module in MODULES[name]:
            import_module(module)
    check = property_of(name)
    fuzzer.Setup(sys.argv, lambda data: check(bytes(data)))
    fuzzer.Fuzz()


if __name__ == "__main__":
    main()
