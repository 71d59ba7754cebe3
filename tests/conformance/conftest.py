from tests.conformance.fixtures import app, reused_postgres, url

__all__ = ["app", "reused_postgres", "url"]
