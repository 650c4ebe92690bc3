"""Of a Django project for tests."""
