"""The database goes away, sleeps, loses replies and fills up, in random order, under workers that nobody kills. A short campaign
here; `make chaos` makes a long one (PENSTOCK_CHAOS_ROUNDS). PENSTOCK_CHAOS_SEED repeats the order of the faults."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.campaign import (
    ROUNDS,
    SEED,
    Field,
    Producer,
    assert_sound,
    campaign,
    faults_of_file,
    faults_of_server,
)
from tests.support.outage import outage_of
from tests.support.postgres import Server
from tests.support.proxy import proxied

pytestmark = [pytest.mark.timeout(300 + 120 * ROUNDS)]


def test_on_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"PENSTOCK_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    with outage_of("postgresql", tmp_path) as outage, proxied(outage.url) as (through, proxy):
        server: Server = outage.server  # type: ignore[attr-defined]
        monkeypatch.setenv("PENSTOCK_DATABASE_URL", through)
        field = Field(outage.url, tmp_path, through)
        try:
            field.start_workers(2)
            producer = Producer(through, random.Random(SEED + 1))
            campaign(field, producer, faults_of_server(field, server, proxy, chance), chance)
            proxy.swallow_commits = 0
            assert_sound(field, producer)
        finally:
            field.close()


def test_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"PENSTOCK_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    with outage_of("sqlite", tmp_path) as outage:
        monkeypatch.setenv("PENSTOCK_DATABASE_URL", outage.url)
        field = Field(outage.url, tmp_path)
        try:
            field.start_workers(2)
            producer = Producer(outage.url, random.Random(SEED + 1))
            campaign(field, producer, faults_of_file(field, chance), chance)
            assert_sound(field, producer)
        finally:
            field.close()
