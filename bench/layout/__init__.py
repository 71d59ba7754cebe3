"""The next layout as real statements, measured beside the present one: `python -m bench.layout`."""
