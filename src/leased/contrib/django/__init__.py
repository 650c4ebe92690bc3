"""Locks of a Django project: the store from its settings, and management commands that run under a lock.

```python
INSTALLED_APPS = [..., "leased.contrib.django"]
LEASED = {"DATABASE": "default"}  # or {"STORE": "redis://localhost"}; without LEASED that is how it is
```
"""

from leased.contrib.django._settings import locks as locks
from leased.contrib.django._settings import store_url as store_url

__all__ = ["locks", "store_url"]
