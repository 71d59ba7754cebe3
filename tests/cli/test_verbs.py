"""The verbs that see and steer, as a script would use them."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from penstock import Failed, Penstock, Succeeded
from penstock.cli.logs import news
from penstock.core.outcomes import Evidence
from tests.cli.conftest import Shell


def test_enqueue_answers_with_the_id(penstock: Shell, app: Penstock, tmp_path: Path) -> None:
    id = penstock.well("enqueue", "resize", "--params", '{"width": 3}', "--priority", "7").out.strip()
    job = app.jobs.get(id)
    assert (dict(job.params), job.priority) == ({"width": 3}, 7)
    given = tmp_path / "params.json"
    given.write_text('{"width": 5}')
    told = penstock.well("enqueue", "resize", "-p", f"@{given}", "--delay", "60", "--json").json
    assert (told["params"], told["waits_for"], told["status"]) == ({"width": 5}, "time", "queued")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["enqueue", "nothing"], 1, "No definition has the key 'nothing'"),
        (["enqueue", "resize", "-p", "[1]"], 2, "expected an object"),
        (["enqueue", "resize", "-p", "{"], 2, "--params is not JSON"),
        (["enqueue", "resize", "-p", "@/no/such/file"], 2, "cannot be read"),
        (["enqueue", "resize", "-p", '{"width": "wide"}'], 2, "width"),
        (["enqueue", "resize", "--at", "tomorrow"], 2, "expected a time like"),
        (["enqueue", "resize", "--at", "2026-02-16T10:30:00"], 2, "no time zone"),
        (["enqueue", "resize", "--tenant", "nobody"], 1, "There is no tenant 'nobody'"),
        (["jobs", "show", "no-uuid"], 2, "expected a UUID"),
        (["jobs", "show", str(uuid4())], 1, "There is no job"),
        (["jobs", "why", str(uuid4())], 1, "There is no job"),
        (["jobs", "list", "--status", "asleep"], 2, "status is 'asleep'"),
        (["prune", "--status", "queued"], 2, "expected one of"),
        (["worker"], 2, "nothing to run"),
        (["worker", "--app", "shop"], 2, "module:attribute"),
        (["worker", "--app", "no_such_module_of_ours:app"], 2, "not to be found"),
        (["worker", "--app", "json:dumps"], 2, "not a Penstock object"),
        (["worker", "--commands", "/no/such/file.toml"], 2, "cannot be read"),
        (["definitions", "apply", "/no/such/file.toml"], 2, "cannot be read"),
        (["db", "check", "--database-url", "mysql://host/db"], 2, "sqlite or postgresql"),
    ],
)
def test_mistakes_are_one_line_where_to_read_more_and_an_exit_code(
    penstock: Shell, app: Penstock, arguments: list[str], code: int, words: str
) -> None:
    answer = penstock(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err
    told, more = answer.err.splitlines()
    assert told.startswith("penstock: ") and more.startswith("More: penstock explain ")
    assert "Traceback" not in answer.err


def test_usage_errors_are_2(penstock: Shell) -> None:
    assert penstock("jobs", "list", "--no-such-option").code == 2
    assert penstock("enqueue").code == 2


def test_a_database_that_is_not_there_is_3(penstock: Shell) -> None:
    answer = penstock("jobs", "list", "--database-url", "sqlite:////no/such/directory/jobs.db")
    assert answer.code == 3 and "penstock: " in answer.err
    answer = penstock("jobs", "list", "--database-url", "postgresql://postgres@127.0.0.1:9/none")
    assert answer.code == 3 and "does not answer" in answer.err


def test_a_waiting_job_is_rescheduled_and_run_now(penstock: Shell, app: Penstock) -> None:
    id = str(app.enqueue("resize", delay=3600).id)
    moved = penstock.well("jobs", "update", id, "--scheduled-for", "2099-01-01T00:00:00Z", "--priority", "7", "--json")
    assert (moved.json["scheduled_for"][:10], moved.json["priority"], moved.json["waits_for"]) == (
        "2099-01-01",
        7,
        "time",
    )
    assert "is changed" in penstock.well("jobs", "update", id, "-p", '{"width": 9}').out
    assert app.jobs.get(id).scheduled_for.year == 2099
    told = penstock.well("jobs", "run-now", id).out
    assert told == f"{id} is due now. No worker that is alive offers 'resize' on the queue 'default'.\n"
    assert app.jobs.get(id).claimable and dict(app.jobs.get(id).params) == {"width": 9}
    app.jobs.update(id, scheduled_for=app.jobs.get(id).scheduled_for.replace(year=2098))
    assert penstock.well("jobs", "update", id, "--scheduled-for", "now", "--json").json["waits_for"] is None
    penstock.well("jobs", "cancel", id)
    refused = penstock("jobs", "run-now", id)
    assert refused.code == 1 and "cannot be run now because it is canceled" in refused.err


def test_jobs_are_listed_for_people_and_for_programs(penstock: Shell, app: Penstock) -> None:
    first, second = app.enqueue("resize"), app.enqueue("resize", {"width": 2})
    lines = penstock.well("jobs", "list").out.splitlines()
    assert [line.split("\t")[:3] for line in lines] == [[str(j.id), "resize", "queued"] for j in (second, first)]
    assert [job["id"] for job in penstock.well("jobs", "list", "--json", "-n", "1").json] == [str(second.id)]
    assert penstock.well("jobs", "list", "--status", "running").out == ""


def test_a_jobs_life_as_the_verbs_tell_it(penstock: Shell, app: Penstock) -> None:
    job = app.enqueue("resize", {"width": 1, "api_token": "hush-hush-hush"})
    id = str(job.id)
    assert "No worker that is alive offers 'resize'" in penstock.well("jobs", "why", id).out
    (claim,) = app.queue.claim("w:1", 1)
    app.queue.finish(
        claim, Failed("it broke", evidence=Evidence(exit_code=3, stdout_tail="hello\n", stderr_tail="oh\n"))
    )
    shown = penstock.well("jobs", "show", id, "--json").json
    assert (shown["status"], shown["runs"][0]["exit_code"]) == ("dead_letter", 3)
    assert shown["params"]["api_token"] == "***"
    plain = penstock.well("jobs", "show", id).out
    assert "it broke" in plain and "hush-hush-hush" not in plain
    logs = penstock.well("jobs", "logs", id, "-f")
    assert logs.out == "hello\n"
    assert logs.err.splitlines() == ["oh", "failed: it broke"]
    assert penstock("jobs", "cancel", id).code == 1
    penstock.well("jobs", "retry", id)
    assert penstock.well("jobs", "cancel", id, "--json").json["status"] == "canceled"


def test_following_a_tail_that_moves_on() -> None:
    assert news("", "abc") == "abc"
    assert news("abc", "abcdef") == "def"
    assert news("abcdef", "defghi") == "ghi"
    assert news("abc", "xyz") == "xyz"
    assert news("aaa", "aaa") == ""


def test_queues_pause_and_resume(penstock: Shell, app: Penstock) -> None:
    job = app.enqueue("resize")
    penstock.well("queues", "pause", "default")
    assert penstock.well("queues", "list", "--json").json == [{"name": "default", "paused": True}]
    assert "paused" in penstock.well("jobs", "why", str(job.id)).out
    penstock.well("queues", "create", "side")
    assert app.queues.list() == {"default": True, "side": False}
    penstock.well("queues", "resume", "default")
    assert penstock.well("queues", "list").out == "default\topen\nside\topen\n"
    assert "no queue sdie" in penstock("queues", "pause", "sdie").err, "a misspelt name pauses nothing"
    assert app.queues.list() == {"default": False, "side": False}


def test_tenants_are_created_and_kept_apart(penstock: Shell, app: Penstock) -> None:
    penstock.well("tenants", "create", "acme", "--name", "Acme", "--timezone", "Europe/Paris")
    assert penstock("tenants", "create", "acme").code == 1
    assert {t["slug"] for t in penstock.well("tenants", "list", "--json").json} == {"default", "acme"}
    id = penstock.well("enqueue", "resize", "--tenant", "acme").out.strip()
    assert penstock("jobs", "show", id).code == 1
    assert penstock.well("jobs", "show", id, "--tenant", "acme", "--json").json["id"] == id


def test_definitions_are_applied_from_a_file(penstock: Shell, app: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "definitions.toml"
    file.write_text('[definitions.sync]\nrunner = "command"\nmax_attempts = 5\n')
    assert penstock.well("definitions", "apply", str(file)).out == "created    sync\n"
    found = {d["key"]: d for d in penstock.well("definitions", "list", "--json").json}
    assert (found["sync"]["max_attempts"], found["sync"]["runner"]) == (5, "command")
    file.write_text("[definitions.sync]\nmax_attempts = 0\n")
    assert penstock("definitions", "apply", str(file)).code == 2
    file.write_text("definitions = 3\n")
    assert "no [definitions.KEY]" in penstock("definitions", "apply", str(file)).err


def test_the_house_is_kept(penstock: Shell, app: Penstock) -> None:
    app.enqueue("resize")
    (claim,) = app.queue.claim("w:1", 1)
    app.queue.finish(claim, Succeeded())
    assert penstock.well("recover").out == "There was nothing to mend.\n"
    assert json.loads(penstock.well("recover", "--json").out)["abandoned"] == 0
    assert penstock.well("prune").out == "There was nothing to prune.\n"
    assert penstock.well("prune", "--older-than-days", "0", "--json").json["jobs"] == 1
    assert penstock.well("workers").out == ""
    assert "already" in penstock.well("db", "upgrade").out
    assert penstock.well("db", "check", "--json").json["schema"]
    assert "succeeded" in penstock.well("top", "--once").out


def test_doctor_says_4_when_a_promise_is_broken(penstock: Shell, app: Penstock) -> None:
    assert penstock.well("doctor", "--json").json["clean"] is True
    app.enqueue("resize")
    (claim,) = app.queue.claim("w:1", 1)
    with app.db.write() as tx:
        tx.conn.exec_driver_sql("DELETE FROM penstock_running")
    answer = penstock("doctor")
    assert answer.code == 4
    assert "P1 job that is in no state and has not ended" in answer.out and str(claim.job_id) in answer.out
    assert penstock.well("recover", "--json").json["without_run"] == 1


def test_help_names_the_exit_codes(penstock: Shell) -> None:
    told = penstock.well("--help").out
    assert "Exit codes" in told and "4" in told
    assert penstock.well("--version").out.startswith("penstock ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pipeline", "lab"], "--pipeline cannot be used with --api"),
        (["--app", "shop:app", "--pipeline", "lab"], "--pipeline cannot be used with --api"),
        (["--app", "shop:app", "--database-url", "sqlite:///x.db"], "--database-url cannot be used with --api"),
        (["--app", "shop:app"], "--api needs --token"),
    ],
)
def test_a_worker_over_the_api_refuses_what_needs_a_database(penstock: Shell, options: list[str], said: str) -> None:
    answer = penstock("worker", "--api", "http://127.0.0.1:9", *options)
    assert answer.code == 2
    assert said in answer.err


def test_a_worker_over_the_api_refuses_a_lease_that_the_service_would_refuse(penstock: Shell, tmp_path: Path) -> None:
    commands = tmp_path / "commands.toml"
    commands.write_text("")
    answer = penstock(
        "worker", "--api", "http://127.0.0.1:9", "--token", "pst_x", "--commands", str(commands), "--lease", "0"
    )
    assert answer.code == 2
    assert "lease" in answer.err


def test_a_token_is_for_the_api(penstock: Shell) -> None:
    answer = penstock("worker", "--app", "shop:app", "--token", "pst_x")
    assert answer.code == 2
    assert "--token" in answer.err
