"""Penstock beside its peers: the same work, on one machine, in one run. `python -m bench.run --help`."""
