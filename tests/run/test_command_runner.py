"""Real children, as bad as they come: the run ends with the truth and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.core.outcomes import Canceled, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.redact import Redactor
from penstock.run.cgroup import Cells
from penstock.run.command import CommandRunner
from penstock.run.commands import parse_commands
from penstock.run.guardian import guardian
from penstock.run.output import TAIL_BYTES
from tests.run.support import Desk, alive, claim, read_pid
from tests.support.waiting import eventually

PYTHON = sys.executable


def toml(value: Any) -> str:
    if value is True:
        return "true"
    if isinstance(value, str):
        return "'''" + value + "'''"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    return str(value)


def runner(
    argv: list[str], redactor: Redactor | None = None, log_dir: Path | None = None, **settings: Any
) -> CommandRunner:
    settings = {"argv": argv, "env": ["PATH"], "kill_grace": 0.5, **settings}
    text = "[commands.c]\n" + "\n".join(f"{name} = {toml(value)}" for name, value in settings.items())
    return CommandRunner(parse_commands(text, Path(__file__), os.environ), redactor, log_dir)


def shell(script: str, desk: Desk | None = None, params: dict[str, Any] | None = None, **settings: Any) -> Outcome:
    braced = script.replace("{", "{{").replace("}", "}}")
    return runner(["sh", "-c", braced], **settings).run(claim("c", params), desk or Desk())


def python(script: str, desk: Desk | None = None, **settings: Any) -> Outcome:
    braced = script.replace("{", "{{").replace("}", "}}")
    return runner([PYTHON, "-c", braced], **settings).run(claim("c"), desk or Desk())


def cgroups_usable() -> bool:
    base = Cells().base
    if base is not None:
        Path(base).rmdir()
    return base is not None


@pytest.fixture(params=["plain", "cgroup"] if cgroups_usable() else ["plain"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine that has control groups, if this one has, and one that has none."""
    if request.param == "plain":
        monkeypatch.setattr(guardian().cells, "base", None)
    return str(request.param)


def test_success_with_both_tails() -> None:
    outcome = shell("echo out; echo err >&2")
    assert isinstance(outcome, Succeeded)
    assert (outcome.evidence.exit_code, outcome.evidence.stdout_tail, outcome.evidence.stderr_tail) == (
        0,
        "out\n",
        "err\n",
    )


def test_failure_says_exit_code_and_last_line() -> None:
    outcome = shell("echo first >&2; echo 'no such folder' >&2; exit 3")
    assert isinstance(outcome, Failed)
    assert outcome.error == "exit code 3: no such folder"
    assert outcome.evidence.exit_code == 3
    assert not outcome.fatal


def test_exit_codes_that_mean_skip_or_later() -> None:
    settings = {"skip_exit_codes": [78], "retry_exit_codes": [75], "retry_delay": 12}
    skipped = shell("echo nothing new >&2; exit 78", **settings)
    assert isinstance(skipped, Skipped) and skipped.reason == "exit code 78: nothing new"
    later = shell("exit 75", **settings)
    assert isinstance(later, Snoozed) and later.seconds == 12


def test_a_payload_that_does_not_fit_is_fatal() -> None:
    outcome = runner(["true", "{path}"]).run(claim("c", {"path": "--help"}), Desk())
    assert isinstance(outcome, Failed) and outcome.fatal
    assert "The payload does not fit the command 'c': the argument of 'path' starts with '-'" in outcome.error


def test_a_program_that_vanished_after_start(tmp_path: Path) -> None:
    program = tmp_path / "gone"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    made = runner([str(program)])
    program.unlink()
    outcome = made.run(claim("c"), Desk())
    assert isinstance(outcome, Failed) and "could not be started: No such file or directory" in outcome.error


def test_the_child_sees_only_its_own_environment_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "postgresql://u:hidden-pw@h/db")
    monkeypatch.setenv("HOME_SECRET", "leaky")
    with open(os.devnull) as extra:  # noqa: PTH123
        os.set_inheritable(extra.fileno(), True)
        outcome = shell("env; ls /proc/self/fd | wc -l; umask; pwd; ls -A | wc -l; touch mine; id -u", env=["PATH"])
    text = outcome.evidence.stdout_tail or ""
    names = {line.split("=")[0] for line in text.splitlines() if "=" in line}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"} == {
        "PATH", "PENSTOCK_RUN_ID", "PENSTOCK_JOB_ID", "PENSTOCK_TENANT_ID", "PENSTOCK_ATTEMPT", "PENSTOCK_KEEPER",
    }  # fmt: skip
    descriptors, mask, directory, files = [line for line in text.splitlines() if "=" not in line][:4]
    assert int(descriptors) <= 5, "0, 1, 2, the listing itself and what the shell keeps"
    assert mask == "0077"
    assert files == "0"
    assert not Path(directory).exists(), "what a run wrote in its own directory is removed with it"


def test_a_working_directory_of_the_operator_is_left_alone(tmp_path: Path) -> None:
    outcome = shell("pwd; touch kept", cwd=str(tmp_path))
    assert outcome.evidence.stdout_tail == f"{tmp_path}\n"
    assert (tmp_path / "kept").exists()


def test_timeout_ends_the_run() -> None:
    outcome = shell("echo begun; sleep 100000", Desk(timeout=3.5))  # the test's own deadline is far below that
    assert isinstance(outcome, TimedOut)
    assert outcome.error == "timed out after 3.5 s"
    assert outcome.evidence.stdout_tail == "begun\n"


def test_the_commands_own_timeout_is_the_smaller_one() -> None:
    assert isinstance(shell("sleep 60", Desk(timeout=600), timeout=0.2), TimedOut)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    outcome = shell(f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done", Desk(timeout=0.4))
    assert isinstance(outcome, TimedOut)
    assert outcome.evidence.exit_code == -9
    assert not alive(read_pid(tmp_path / "pid"))


def test_a_child_may_clean_up_on_sigterm() -> None:
    outcome = shell("trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done", Desk(timeout=0.4), kill_grace=10)
    assert isinstance(outcome, TimedOut)
    assert "cleaned" in (outcome.evidence.stdout_tail or "")


@pytest.mark.parametrize("by_shutdown", [False, True])
def test_cancellation_stops_the_run(by_shutdown: bool, tmp_path: Path) -> None:
    desk = Desk()

    def cancel_once_running() -> None:
        read_pid(tmp_path / "pid")
        desk.cancel("by ann", by_shutdown)

    canceler = threading.Thread(target=cancel_once_running)
    canceler.start()
    outcome = shell(f"echo $$ > {tmp_path}/pid; sleep 60", desk)
    canceler.join()
    assert isinstance(outcome, Canceled)
    assert (outcome.reason, outcome.by_shutdown) == ("by ann", by_shutdown)


def test_children_that_outlive_the_command_are_ended(machine: str, tmp_path: Path) -> None:
    outcome = shell(f"sleep 300 & echo $! > {tmp_path}/pid; exit 0")
    assert isinstance(outcome, Succeeded)
    pid = read_pid(tmp_path / "pid")
    eventually(lambda: not alive(pid), what="the end of the child left behind")


ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
os.wait()
while not (os.path.exists(sys.argv[1]) and os.path.getsize(sys.argv[1])):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("then", ["pass", "time.sleep(300)"])
def test_a_double_fork_into_a_new_session_does_not_escape(then: str, machine: str, tmp_path: Path) -> None:
    made = runner([PYTHON, "-c", ESCAPE + then, f"{tmp_path}/pid"])
    outcome = made.run(claim("c"), Desk(timeout=None if then == "pass" else 1.0))
    assert isinstance(outcome, Succeeded if then == "pass" else TimedOut)
    pid = read_pid(tmp_path / "pid")
    eventually(lambda: not alive(pid), what="the end of the daemon")


def test_a_cleaned_environment_is_no_way_out(machine: str, tmp_path: Path) -> None:
    # Without control groups such a one is found as a descendant, hence only while the main process lives
    then = "sleep 300" if machine == "plain" else "exit 0"
    script = f"env -i setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $! > {tmp_path}/pid; {then}"
    outcome = shell(script, Desk(timeout=0.5 if machine == "plain" else None), contained=True)
    assert isinstance(outcome, TimedOut if machine == "plain" else Succeeded)
    pid = read_pid(tmp_path / "pid")
    eventually(lambda: not alive(pid), what="the end of the disguised child")


def test_what_forks_while_it_is_being_ended_is_ended(machine: str) -> None:
    forker = "trap '' TERM; while :; do setsid sleep 301 & sleep 0.01; done"
    outcome = shell(f"({forker}) & ({forker}) & wait", Desk(timeout=0.3), kill_grace=0.1)
    assert isinstance(outcome, TimedOut)

    def left() -> list[psutil.Process]:
        found = [p for p in psutil.process_iter(["cmdline", "status"]) if p.info["cmdline"] == ["sleep", "301"]]
        return [p for p in found if p.info["status"] != psutil.STATUS_ZOMBIE]

    eventually(lambda: not left(), what="the end of all that was forked")


def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_run(tmp_path: Path) -> None:
    outcome = shell(f"(setsid sleep 100000 & echo $! > {tmp_path}/pid); echo done")
    assert isinstance(outcome, Succeeded)
    assert outcome.evidence.stdout_tail == "done\n"
    pid = read_pid(tmp_path / "pid")
    eventually(lambda: not alive(pid), what="the end of the grandchild")


def test_closing_the_pipes_and_going_on() -> None:
    outcome = shell("echo bye; exec >&- 2>&-; sleep 0.4; exit 7")
    assert isinstance(outcome, Failed)
    assert (outcome.evidence.exit_code, outcome.evidence.stdout_tail) == (7, "bye\n")


def test_a_flood_leaves_memory_flat(tmp_path: Path) -> None:
    me = psutil.Process()
    shell("head -c 1000000 /dev/zero")
    before = me.memory_info().rss
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, me.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        outcome = shell("yes 'a line of output' | head -c 200000000", log_dir=tmp_path, log_limit_mb=1)
    finally:
        done.set()
        watcher.join()
    assert isinstance(outcome, Succeeded)
    assert peak - before < 16 * 1024 * 1024
    assert len((outcome.evidence.stdout_tail or "").encode()) == TAIL_BYTES
    assert outcome.evidence.log_path is not None
    assert Path(outcome.evidence.log_path).stat().st_size == 1024 * 1024
    assert "the log is cut off at its limit of 1048576 bytes" in (outcome.evidence.stderr_tail or "")


def test_bytes_that_are_not_utf8_or_not_storable() -> None:
    outcome = shell(r"printf '\377\376ok\000\303'")
    assert outcome.evidence.stdout_tail == "\ufffd\ufffdok\ufffd\ufffd"


def test_a_tail_starts_at_a_whole_character() -> None:
    outcome = python("import sys; sys.stdout.buffer.write('€'.encode() * 30000)")
    tail = outcome.evidence.stdout_tail or ""
    assert set(tail) == {"€"}
    assert TAIL_BYTES - 3 < len(tail.encode()) <= TAIL_BYTES


def test_tails_are_reported_while_it_runs(tmp_path: Path) -> None:
    desk = Desk()
    release = tmp_path / "go"
    thread = threading.Thread(target=lambda: (eventually(lambda: bool(desk.tails)), release.touch()))
    thread.start()
    outcome = shell(f"echo step 1; while [ ! -e {release} ]; do sleep 0.05; done; echo step 2", desk)
    thread.join()
    assert desk.tails[0] == ("step 1\n", "")
    assert outcome.evidence.stdout_tail == "step 1\nstep 2\n"


def test_a_report_that_fails_does_not_fail_the_run() -> None:
    class Broken(Desk):
        def report_tails(self, stdout: str, stderr: str) -> None:
            raise ConnectionError("the database is away")

    assert isinstance(shell("echo x; sleep 1.3", Broken()), Succeeded)


def test_the_whole_log_is_private_and_named_by_the_run(tmp_path: Path) -> None:
    ours = claim("c")
    outcome = runner(["sh", "-c", "echo out; echo err >&2"], log_dir=tmp_path / "logs").run(ours, Desk())
    path = Path(outcome.evidence.log_path or "")
    assert path == tmp_path / "logs" / f"{ours.run_id}.log"
    assert sorted(path.read_text().splitlines()) == ["err", "out"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_would_follow_a_link_is_not_written(tmp_path: Path) -> None:
    ours = claim("c")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"{ours.run_id}.log").symlink_to(victim)
    outcome = runner(["echo", "x"], log_dir=tmp_path).run(ours, Desk())
    assert isinstance(outcome, Succeeded)
    assert outcome.evidence.log_path is None
    assert "no log was kept" in (outcome.evidence.stderr_tail or "")
    assert victim.read_text() == "precious"


FULL_DISK = """
import resource, sys
from pathlib import Path
from penstock.core.outcomes import Succeeded
from tests.run.test_command_runner import Desk, claim, runner
made = runner(["sh", "-c", "head -c 300000 /dev/zero | tr '\\\\0' x; echo; echo the end"], log_dir=Path(sys.argv[1]))
made.run(claim("c"), Desk())
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
outcome = made.run(claim("c"), Desk())
assert isinstance(outcome, Succeeded), outcome
assert outcome.evidence.stdout_tail.endswith("the end\\n")
assert Path(outcome.evidence.log_path).stat().st_size == 100_000
print(outcome.evidence.stderr_tail)
"""


def test_a_log_that_cannot_be_written_is_noted_and_the_run_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, env={**os.environ, **import_path()}
    )
    assert done.returncode == 0, done.stderr
    assert "[penstock] the log is incomplete: File too large" in done.stdout


def test_secrets_split_over_reads_are_masked_in_tails_and_log(tmp_path: Path) -> None:
    made = runner(
        ["sh", "-c", "printf 'key s3cr'; sleep 0.2; printf 'et-of-worker '; sleep 0.2; echo hunter-two ghp_abcd1234"],
        redactor=Redactor(["s3cret-of-worker"]),
        log_dir=tmp_path,
        secrets=["ghp_[a-z0-9]+"],
    )
    outcome = made.run(claim("c", {"db": {"password": "hunter-two"}}), Desk())
    assert outcome.evidence.stdout_tail == "key *** *** ***\n"
    assert Path(outcome.evidence.log_path or "").read_text() == "key *** *** ***\n"


def test_secrets_do_not_come_back_through_the_error() -> None:
    made = runner(["sh", "-c", "echo failed with hunter-two >&2; exit 1"])
    outcome = made.run(claim("c", {"password": "hunter-two"}), Desk())
    assert isinstance(outcome, Failed) and outcome.error == "exit code 1: failed with ***"


def test_limits_hold() -> None:
    memory = python("x = bytearray(900_000_000)", rlimits={"memory_mb": 300})
    assert isinstance(memory, Failed) and "MemoryError" in memory.error
    cpu = python("while True: pass", rlimits={"cpu_seconds": 1})
    assert isinstance(cpu, Failed) and "over its limit of CPU time" in cpu.error
    files = shell("ulimit -c; head -c 3000000 /dev/zero > big", rlimits={"file_mb": 1})
    assert isinstance(files, Failed)
    assert files.evidence.stdout_tail == "0\n", "no core dumps"


def test_a_kill_from_outside_is_told() -> None:
    outcome = shell("kill -9 $$")
    assert isinstance(outcome, Failed) and "SIGKILL, which the worker did not send" in outcome.error


def test_hundreds_of_runs_leave_no_zombie_and_no_descriptor() -> None:
    made = runner(["sh", "-c", "echo x"])

    def run_many(count: int) -> None:
        threads = [
            threading.Thread(target=lambda: [made.run(claim("c"), Desk()) for _ in range(count)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run_many(5)
    me = psutil.Process()
    descriptors = me.num_fds()
    run_many(75)
    assert me.num_fds() <= descriptors + 3, "a control group is kept open for each run that went on at once"
    assert [child for child in me.children() if child.status() == psutil.STATUS_ZOMBIE] == []


PARENT = """
import sys
from tests.run.test_command_runner import Desk, claim, runner
runner(["sh", "-c", sys.argv[1]]).run(claim("c"), Desk())
"""


def test_a_killed_worker_takes_its_whole_trees_along(tmp_path: Path) -> None:
    script = f"setsid sleep 300 & echo $! > {tmp_path}/escaped; echo $$ > {tmp_path}/main; pwd > {tmp_path}/cwd; wait"
    worker = subprocess.Popen([PYTHON, "-c", PARENT, script], env={**os.environ, **import_path()})
    try:
        pids = [read_pid(tmp_path / "main"), read_pid(tmp_path / "escaped")]
        assert all(alive(pid) for pid in pids)
    finally:
        worker.kill()
        worker.wait()
    eventually(lambda: not any(alive(pid) for pid in pids), what="the end of the killed worker's children")
    directory = Path((tmp_path / "cwd").read_text().strip())
    eventually(lambda: not directory.exists(), what="the removal of its directory")


FORKING = """
import os, sys
from tests.run.test_command_runner import Desk, claim, guardian, runner
made = runner(["echo", "x"])
made.run(claim("c"), Desk())
parents = guardian()
if os.fork() == 0:
    assert guardian() is not parents
    made.run(claim("c"), Desk())
    sys.exit(0)
os.wait()
assert os.path.isdir(parents.workspaces.base), "the forked process cleaned up after itself only"
made.run(claim("c"), Desk())
print("fine")
"""


def test_a_forked_worker_has_a_guardian_of_its_own() -> None:
    done = subprocess.run(
        [PYTHON, "-W", "error", "-c", FORKING], capture_output=True, text=True, env={**os.environ, **import_path()}
    )
    assert done.stdout.endswith("fine\n"), done.stderr


def test_a_guardian_that_was_killed_is_replaced_once_whoever_notices() -> None:
    assert isinstance(shell("true"), Succeeded)
    first = guardian()._process
    assert first is not None
    first.kill()
    first.wait()
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: shell("true"), range(40)))
    assert {type(outcome) for outcome in outcomes} == {Succeeded}
    second = guardian()._process
    assert second is not None and second.pid != first.pid and second.poll() is None
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert [child.pid for child in living if any("guardian_main.py" in word for word in child.cmdline())] == [
        second.pid
    ]


def test_a_guardian_that_was_never_needed_leaves_nothing() -> None:
    script = (
        "from penstock.run.guardian import guardian as g; print(g().workspaces.base, g().cells.base or '', sep='\\n')"
    )
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, env={**os.environ, **import_path()})
    made = [Path(line) for line in done.stdout.splitlines() if line]
    assert made and not [path for path in made if path.exists()], done.stderr


def import_path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}  # noqa: PTH109
