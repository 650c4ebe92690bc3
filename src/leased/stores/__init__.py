"""The stores that come with the package; each is imported by `leased.targets` when its scheme is used."""
