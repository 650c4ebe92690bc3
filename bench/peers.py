"""The environment of the peers: made by the bench, beside the checkout's own, with pinned versions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REQUIREMENTS = (
    "filelock==4.3.1",
    "redis[hiredis]==8.1.0",
    "valkey[libvalkey]==6.2.0",
    "python-redis-lock==4.0.1",
    "aioredlock==0.7.3",
    "sqlalchemy-dlock==0.9.0",
    "SQLAlchemy[asyncio]==2.1.9",
    "django-pglock==1.8.0",
    "Django==5.2.19",
    "psycopg[binary]==3.3.9",
    "PyMySQL==1.2.4",
    "asyncmy==0.2.18",
    "aetcd==1.0.0",
    "tooz[etcd3gw]==9.1.0",
    "python-dynamodb-lock==0.9.1",
    "boto3==1.43.117",
    "aiobotocore==3.10.0",
)


def python_with_peers(cache: Path, *, requirements: Sequence[str] = REQUIREMENTS) -> str:
    """The Python that has the peers installed; made on first use, and anew when the versions change."""
    home = cache / "peers"
    python = home / "bin" / "python"
    stamp = home / "installed.txt"
    wanted = "\n".join((sys.version, *requirements))
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        subprocess.run(install, check=True)
        stamp.write_text(wanted)
    return str(python)
