"""The statements behind pipelines: user tables, the catalog that remembers them, and their job tables.

`penstock.pipeline` composes relations; what reaches the database is written here and nowhere else.
"""
