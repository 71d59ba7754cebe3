"""For tests of your own jobs: an app on a fresh SQLite, a clock to move, `drain()` that runs what is due inline.

```python
def test_welcome_mail(penstock_app):            # the pytest plugin comes with the package
    register_jobs(penstock_app)
    sign_up("ada@example.org", app=penstock_app)
    penstock_app.assert_enqueued("welcome-mail", {"to": "ada@example.org"})
    penstock_app.drain()
    penstock_app.clock.advance(days=1)
```
"""

from __future__ import annotations
