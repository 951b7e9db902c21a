"""The house's HTTP address: health, counts, hooks, and the routes that others add."""
