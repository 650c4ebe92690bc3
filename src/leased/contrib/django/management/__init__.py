"""Management commands of a Django project that uses leased."""
