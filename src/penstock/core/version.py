"""The version, where every room can see it."""

VERSION = "0.1.0"
