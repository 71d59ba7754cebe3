"""For tests of your own jobs: an app on a fresh SQLite, a clock to move, `drain()` that runs what is due inline.

The pytest plugin comes with the package, and gives the app as a fixture:

```python
def test_welcome_mail(penstock_app):
    @penstock_app.job(key="welcome-mail")
    def welcome(to: str) -> None: ...

    welcome.enqueue(to="ada@example.org")
    penstock_app.assert_enqueued("welcome-mail", {"to": "ada@example.org"})
    penstock_app.drain()
```

Without pytest: `with PenstockTest() as app: …`. Nothing heavy is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.clock import ManualClock
    from penstock.testing.bench import PenstockTest

__all__ = ["ManualClock", "PenstockTest"]


def __getattr__(name: str) -> Any:
    if name == "PenstockTest":
        from penstock.testing.bench import PenstockTest

        return PenstockTest
    if name == "ManualClock":
        from penstock.core.clock import ManualClock

        return ManualClock
    raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")


try:
    import pytest
except ImportError:  # the class is of use without it
    pass
else:

    @pytest.fixture
    def penstock_clock() -> ManualClock:
        """A clock that moves when told to, in 2026."""
        from penstock.core.clock import ManualClock

        return ManualClock()

    @pytest.fixture
    def penstock_app(penstock_clock: ManualClock) -> Iterator[PenstockTest]:
        """A Penstock app on a fresh SQLite whose time is `penstock_clock`."""
        from penstock.testing.bench import PenstockTest

        with PenstockTest(clock=penstock_clock) as app:
            yield app
