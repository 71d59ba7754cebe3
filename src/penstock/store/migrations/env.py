"""Unused by Penstock itself, which runs its migrations in `store.schema`; here for Alembic's own command line."""
