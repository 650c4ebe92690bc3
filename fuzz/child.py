"""The process that atheris runs one target in; `fuzz.__main__` starts it."""

import sys
from importlib import import_module

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

from fuzz.targets import MODULES, property_of


def main() -> None:
    """Feed the target until the time is over or its property breaks."""
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=list(MODULES[name]), enable_loader_override=False):
        for module in MODULES[name]:
            import_module(module)
    check = property_of(name)
    atheris.Setup(sys.argv, lambda data: check(bytes(data)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
