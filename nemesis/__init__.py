"""Worker processes, a nemesis that breaks what they use, and a judge of what they recorded; no part of the package."""
