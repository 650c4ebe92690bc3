"""What Django's admin calls the locks, so that they have a page and permissions there. It has no table.

Only a project with the admin has it: a model asks for the project's database, which a project need not have.
"""

from __future__ import annotations

from typing import ClassVar

from django.apps import apps  # type: ignore[import-untyped]
from django.db import models  # type: ignore[import-untyped]

if apps.is_installed("django.contrib.admin"):

    class Lock(models.Model):  # type: ignore[misc]
        """A lock as the admin names it. There are no rows: what is held is read from the store."""

        key = models.CharField(primary_key=True, max_length=255)

        class Meta:
            """See Django."""

            managed = False
            default_permissions = ("view",)
            permissions: ClassVar = [("force_release_lock", "Can release locks by force")]

        def __str__(self) -> str:
            """The key."""
            return str(self.key)
