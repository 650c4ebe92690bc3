"""The settings of a Django project with an admin, whose database and locks are in the environment."""

import json
import os

SECRET_KEY = "of tests"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.contrib.django_admin_urls"
USE_TZ = True
DATABASES = {"default": json.loads(os.environ["TEST_DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "leased.contrib.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "/static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # quick: nothing here is worth a slow one
if "TEST_LEASED" in os.environ:
    LEASED = json.loads(os.environ["TEST_LEASED"])
