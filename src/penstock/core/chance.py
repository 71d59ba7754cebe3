"""Chance, from a generator of our own: one that a program has seeded for itself is left alone."""

from __future__ import annotations

import os
import random

chance = random.Random()

if hasattr(os, "register_at_fork"):  # else parent and child would wait for the same times
    os.register_at_fork(after_in_child=chance.seed)
