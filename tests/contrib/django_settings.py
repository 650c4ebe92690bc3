"""The settings of a Django project whose database and locks are in the environment."""

import json
import os

SECRET_KEY = "of tests"
INSTALLED_APPS = ["leased.contrib.django", "tests.contrib.django_project"]
DATABASES = json.loads(os.environ.get("TEST_DATABASES", "{}"))
USE_TZ = True
if "TEST_LEASED" in os.environ:
    LEASED = json.loads(os.environ["TEST_LEASED"])
