"""What the judge looks at, promise by promise."""
