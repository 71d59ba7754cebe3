"""What commands could read because of the user they run as, and what operators are told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock, Succeeded
from penstock.core.errors import InvalidInput
from penstock.run.account import Account
from penstock.run.command import CommandRunner
from penstock.run.commands import Command, load_commands
from penstock.run.exposure import exposures, may_read
from penstock.run.guardian import guardian
from tests.run.support import Desk, claim

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start programs as another user")


def commands(folder: Path, *lines: str) -> dict[str, Command]:
    path = folder / "commands.toml"
    path.write_text("\n".join(["[commands.look]", 'argv = ["/bin/true"]', *lines]))
    return load_commands(path)


@root_only
def test_commands_that_run_as_root_are_told_of(tmp_path: Path) -> None:
    [told] = exposures(commands(tmp_path), None)
    assert "The command look runs as root" in told and 'user = "…"' in told
    assert exposures(commands(tmp_path, 'user = "nobody"'), None) == []


@root_only
def test_a_database_file_that_a_command_may_read_is_told_of() -> None:
    folder = Path(f"/tmp/penstock-exposure-{os.getpid()}")
    folder.mkdir(mode=0o755)
    file = folder / "jobs.db"
    try:
        file.touch(0o644)
        file.chmod(0o644)
        made = commands(folder, 'user = "nobody"')
        [told] = exposures(made, str(file))
        assert str(file) in told and "mode 600" in told
        file.chmod(0o600)
        assert exposures(made, str(file)) == []
        file.chmod(0o640)
        assert not may_read(file, 65534, [65534]) and may_read(file, 65534, [65534, 0])
        file.chmod(0o644)
        folder.chmod(0o700)
        assert exposures(made, str(file)) == [], "its directory keeps others out"
    finally:
        for left in (*folder.iterdir(), folder):
            left.rmdir() if left.is_dir() else left.unlink()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_doctor_tells_of_a_database_file_that_everybody_may_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    with Penstock(url) as app:
        path.chmod(0o644)
        name = "database file open to all"
        assert name not in {warning.check for warning in app.doctor().warnings}, "pytest's directory is for us alone"
        opened = [folder for folder in path.parents if not folder.stat().st_mode & 0o001]
        modes = {folder: folder.stat().st_mode for folder in opened}
        try:
            for folder in opened:
                folder.chmod(0o711)
            assert name in {warning.check for warning in app.doctor().warnings}
            path.chmod(0o600)
            assert name not in {warning.check for warning in app.doctor().warnings}
        finally:
            for folder, mode in modes.items():
                folder.chmod(mode)


def test_a_user_that_does_not_exist_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"line 3: \[commands.look\] there is no user 'nobody-at-all' on this machine"
    ):
        commands(tmp_path, 'user = "nobody-at-all"')


def test_a_worker_that_is_not_root_cannot_change_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(InvalidInput, match="only a worker that runs as root can start a program as 'nobody'"):
        commands(tmp_path, 'user = "nobody"')


def test_where_nothing_is_run_the_user_need_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "commands.toml"
    path.write_text('[commands.look]\nargv = ["look"]\nuser = "nobody-at-all"\n')
    assert load_commands(path, to_run=False)["look"].account is None


def test_become_names_the_user_and_every_group() -> None:
    argv = Account("x", 1, 2, (2, 3)).become
    assert argv[1:] == ["--reuid=1", "--regid=2", "--groups=2,3", "--"]


PEER = """
import ctypes, os, subprocess, sys
from penstock.run.shield import PR_SET_DUMPABLE, shield
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as in a program that was started by this user
before = subprocess.run(["/bin/sh", "-c", LOOK], env={}, capture_output=True, text=True)
assert before.returncode == 0, before
shield()
after = subprocess.run(["/bin/sh", "-c", LOOK], env={}, capture_output=True, text=True)
assert os.environ["A_SECRET"] == "s3cr3t" and "s3cr3t" not in after.stdout, after
assert after.returncode != 0 and "ermission denied" in after.stderr, after
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
@pytest.mark.parametrize("look", ["cat /proc/$PPID/environ", "head -c 0 /proc/$PPID/mem", "ls /proc/$PPID/fd"])
def test_a_process_of_the_same_user_sees_nothing_in_proc(look: str) -> None:
    code = f"LOOK = {look!r}\n{PEER}"
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "A_SECRET": "s3cr3t"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_no_descriptor_of_the_worker_is_inherited(tmp_path: Path) -> None:
    """Not even one that may be inherited: neither by a command, nor by the process that watches over commands."""
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t")
    handle = os.open(secret, os.O_RDONLY)
    os.set_inheritable(handle, True)
    try:
        path = tmp_path / "commands.toml"
        path.write_text(
            "[commands.look]\nargv = ['/bin/sh', '-c', 'ls -l /proc/$$/fd; ls -l /proc/$1/fd', 'sh', '{guardian}']\n"
        )
        keeper = guardian()
        keeper.ready()
        assert keeper._process is not None
        desk, order = Desk(), claim("look", {"guardian": keeper._process.pid})
        outcome = CommandRunner(load_commands(path)).run(order, desk)
    finally:
        os.close(handle)
    assert isinstance(outcome, Succeeded), outcome
    told = outcome.evidence.stdout_tail or ""
    assert str(secret) not in told
    assert {line.split()[8] for line in told.splitlines() if " -> " in line} == {"0", "1", "2"}, told
