"""Every number and switch of the engine that an installation may set, one file per subject. `core/config.py` puts them together."""
