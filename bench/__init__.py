"""Side-by-side measurements of leased against floors and peers: `make bench`. Nothing in the package depends on it."""
