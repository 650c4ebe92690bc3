"""The application that projects install for its management commands and its page in the admin. It has no tables."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]


class LeasedConfig(AppConfig):  # type: ignore[misc]
    """See `leased.contrib.django`."""

    name = "leased.contrib.django"
    label = "leased"
    verbose_name = "Locks"
