"""The stores that come with the package; each is imported by `leased.connect` when its scheme is used."""
