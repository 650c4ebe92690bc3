"""Where locks meet other libraries: each module is thin, uses the public names only, and imports its library late."""
