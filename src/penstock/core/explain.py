"""What every error code means and what to do about it: the text of `penstock explain`, of the service's help pages and of
docs/reference/errors.md."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from penstock.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code: what happened, what to do, and the page that goes deeper."""

    code: str
    happened: str
    do: str
    page: str
    """Under docs/."""


_ALL = (
    # what was asked
    ("invalid_input", "An argument is wrong. Nothing was written.",
     "The message names the argument, what it was and what was expected.", "reference/python.md"),
    ("unknown_definition", "No definition has this key, or none that this tenant may use.",
     "`penstock definitions list` shows the keys. A function is defined by `@app.job`, a command by `app.define(key, runner=\"command\")` "
     "or `penstock definitions apply`. A worker started with `--app` defines what the app registers.", "tutorial/first-ten-minutes.md"),
    ("definition_archived", "The definition was archived: jobs that it has go on, new ones are refused.",
     "Define the key again to bring it back; its schedules stay disabled until you enable them.", "reference/python.md"),
    ("unknown_tenant", "There is no tenant with this slug.",
     "`penstock tenants list` shows them, `penstock tenants create SLUG` makes one. Every database has `default`.", "explanation/security.md"),
    ("invalid_payload", "The params do not fit the definition's schema, or are over 1 MiB or nested over 64 levels. Nothing was written.",
     "The message has a path for each fault. Params are the definition's defaults with yours over them; `penstock definitions list --json` "
     "has the schema.", "reference/python.md"),
    ("invalid_schedule", "A cron expression, a time zone or a policy of a trigger cannot be used.",
     "Five fields (minute hour day month weekday) or `@daily` and its like, an IANA zone such as Europe/Berlin. "
     "`penstock triggers preview` shows the next moments of an expression.", "triggers/schedules.md"),
    ("invalid_template", "A template of a payload or an argv cannot be read, or names something that is not there.",
     "Placeholders are `{name}` and take a whole argument or what follows `--flag=`. The message has the path.", "triggers/events.md"),
    ("naive_datetime", "A datetime came without a time zone, and guessing one would be wrong twice a year.",
     "Pass an aware one: `datetime.now(timezone.utc)`, or `datetime(..., tzinfo=ZoneInfo(\"Europe/Berlin\"))`.", "reference/python.md"),
    # what is there
    ("not_found", "There is nothing with this id for this tenant. Another tenant's answers the same, on purpose.",
     "Check the id, and the tenant: `--tenant`, `PENSTOCK_TENANT`, or the header `X-Tenant` of a super admin. It may have been pruned.",
     "explanation/security.md"),
    ("illegal_transition", "The job is not in a state that allows this. Nothing was changed.",
     "The message names its state and the states that allow it. `penstock jobs why ID` says how it came there.", "explanation/life-of-a-job.md"),
    ("lease_lost", "This run is no longer the caller's: its lease ran out and the work passed on, or it was closed. The report changed nothing.",
     "If it happens often, the worker is stopped or starved for longer than its lease: raise `lease_seconds`, or give it less to do at once. "
     "Work that reaches outside can be fenced by the run id.", "explanation/promises.md"),
    ("busy", "A tenant's reservation could not be had in the time given: work of it is still running.",
     "Wait longer, or cancel what runs. `penstock jobs list --status running` shows it.", "explanation/promises.md"),
    ("conflict", "Somebody else changed it first, or it exists already.",
     "Read it again and repeat the change if it still makes sense.", "explanation/promises.md"),
    ("quota_exceeded", "The tenant has as many of something as its quota allows, or asks too often. Nothing was written.",
     "The message names the quota, its value and how many are in use. Remove some or wait; the operator raises it with "
     "`penstock tenants update SLUG --quota NAME=NUMBER`.", "service/quotas.md"),
    ("priority_out_of_range", "This tenant may not ask for that priority. Nothing was written.",
     "Use a priority within the range that the message names; the operator changes it with "
     "`penstock tenants update SLUG --min-priority N --max-priority N`.", "service/quotas.md"),
    ("forbidden", "The role of this token or user does not allow that.",
     "Ask for a token of another role: viewer reads, operator acts on jobs, tenant_admin also on triggers and tokens, super_admin on all.",
     "explanation/security.md"),
    ("key_missing", "The value is encrypted with a key of the operator's that this process does not have.",
     "Add the key to `PENSTOCK_KEYS` or `PENSTOCK_KEYS_FILE` of this process; `penstock keys list` shows which keys are in use. A job that "
     "met a worker without its key has lost no attempt and waits for one that has it.", "howto/encrypt-at-rest.md"),
    ("ciphertext_invalid", "An encrypted value was changed since it was written, or copied from another row, column or tenant. It is not used.",
     "Something other than Penstock writes to the database. Restore the row from a backup. A job whose params are damaged is a dead letter: "
     "enqueue it again.", "howto/encrypt-at-rest.md"),
    ("scope_missing", "The role of this token allows it, but the token is limited to other scopes or definitions.",
     "The message names the scope. Use a token that has it, or let an administrator create one: `penstock tokens create --scope …`.",
     "service/tokens.md"),
    ("exceeds_parent", "A token was to be created or rotated that may do more than the one that asks: a wider role, another tenant, more "
     "scopes, definitions or networks, or a later end. Nothing was written.",
     "Ask for less, leave out what is to be as with the token that asks, or use a token that has what is asked for.", "service/tokens.md"),
    ("address_refused", "The token may be used from some networks only, and this request came from another address.",
     "Send it from one of them. Behind a proxy, tell Penstock which proxy to believe, or every request seems to come from the proxy.",
     "service/tokens.md"),
    # the database
    ("database_error", "The database refused a statement for a reason of its own.",
     "The message has what it said. `penstock doctor` looks at the database as a whole.", "howto/many-machines.md"),
    ("database_unavailable", "The database is not there, or does not answer.",
     "Check `PENSTOCK_DATABASE_URL`, that the server runs and that its driver is installed (`pip install 'penstock[postgres]'`). "
     "Workers wait and come back by themselves.", "howto/many-machines.md"),
    ("database_read_only", "The database can be read but not written.",
     "A SQLite file and its folder must be writable by this user; a PostgreSQL standby takes no writes.", "howto/many-machines.md"),
    ("database_locked", "Another process held SQLite's write lock for longer than we wait.",
     "Find the long transaction and end it. If many processes write all the time, it is time for PostgreSQL: `penstock db copy`.",
     "howto/sqlite-to-postgresql.md"),
    ("database_full", "The disk is full. Nothing that was refused has been acknowledged.",
     "Make room, for example with `penstock prune`; workers go on by themselves.", "explanation/capacity.md"),
    ("database_corrupt", "The file is not a healthy SQLite database.",
     "Do not write to it. Restore a backup, or try `sqlite3 FILE .recover`. Network file systems do this to SQLite.",
     "explanation/capacity.md"),
    ("schema_too_new", "The tables were made by a newer Penstock than this one.",
     "Upgrade the program. A newer database is never written by an older one.", "howto/upgrade-and-backup.md"),
    ("schema_outdated", "The tables are older than the program.", "Run `penstock db upgrade`.",
     "howto/upgrade-and-backup.md"),
    ("schema_mismatch", "The tables are not those that the version of the schema promises: somebody changed them, or they were made "
     "by a program that was never released.",
     "The message names what differs. Create a missing index again by its definition; restore a backup if tables or columns are gone.",
     "howto/upgrade-and-backup.md"),
    # pipelines
    ("pipeline_error", "A pipeline was asked for something that cannot be.", "The message says what was expected.", "pipelines/index.md"),
    ("invalid_definition", "A table's definition cannot be read. Nothing was created.",
     "The message shows the line and what was expected there.", "pipelines/definitions.md"),
    ("invalid_restriction", "A restriction cannot be read, or names no attribute of the relation.",
     "Text is read as a MySQL condition over the relation's attributes; a mapping needs at least one of them.", "pipelines/relations.md"),
    ("invalid_query", "A relation cannot be formed, or holds something else than was asked of it.",
     "`fetch1` needs exactly one row; a join needs namesakes to mean the same.", "pipelines/relations.md"),
    ("invalid_row", "A row does not fit its table. Nothing was written.", "The message names the row, the attribute and its type.",
     "pipelines/definitions.md"),
    ("duplicate", "A row with this key is there already.", "Pass `skip_duplicates=True` to leave it, `replace=True` to replace it.",
     "pipelines/relations.md"),
    ("missing_parent", "A row points at a parent that is not there, or a parent still has children.",
     "Insert the parent first; `delete()` takes the children along.", "pipelines/relations.md"),
    ("access_denied", "This table does not take that change from here: computed tables fill themselves.",
     "Insert from its own make(), or pass `allow_direct_insert=True` if you must.", "pipelines/jobs.md"),
    ("invalid_blob", "A value cannot be stored in a blob, or stored bytes cannot be read.",
     "Blobs hold numpy arrays, numbers, text, dates and containers of those. Never pickles.", "pipelines/blobs.md"),
    ("empty_make", "make() ended well but inserted no row for its key.",
     "Insert one, leave the key out of `key_source`, or call `jobs.ignore(key)`.", "pipelines/jobs.md"),
    ("input_changed", "What make_fetch() saw changed before the result could be inserted.", "Nothing to do: the key is made again.",
     "pipelines/jobs.md"),
    ("transient", "make() said that time may heal this.", "Nothing to do: the key is tried again by the retry policy.", "pipelines/jobs.md"),
    ("missing_extra", "An optional package is not installed.", "The message has the `pip install` that brings it.", "pipelines/index.md"),
    # the service
    ("unauthenticated", "No token or session came with the request, or one that is unknown, revoked or expired.",
     "Send `Authorization: Bearer pst_…`; `penstock tokens create` makes one. In the browser, sign in again.", "service/index.md"),
    ("sign_in_not_configured", "Somebody tried to sign in with OpenID Connect, which is not set up here.",
     "Sign in with a token or a sign-in link, or set `oidc_issuer`, `oidc_client_id` and `public_url`.", "howto/sign-in-with-openid-connect.md"),
    ("sign_in_expired", "The identity provider's reply does not belong to a sign-in that this browser began within the last ten minutes, or it "
     "was used before.", "Begin again from the sign-in page, in one tab. If it happens always, `public_url` is not the address that people use.",
     "howto/sign-in-with-openid-connect.md"),
    ("sign_in_refused", "The identity provider did not sign the person in. The message has its own word for why.",
     "`access_denied` is the person's or the provider's decision. `invalid_client` and `invalid_grant` point to `oidc_client_id`, "
     "`oidc_client_secret` and the redirect URI that is registered at the provider.", "howto/sign-in-with-openid-connect.md"),
    ("sign_in_untrusted", "What the identity provider sent is no proof of who somebody is: a signature, an issuer, an audience, a nonce or a time "
     "is not right.", "The log line `sign_in_untrusted` says which. Check `oidc_issuer`, `oidc_client_id` and the clocks of both machines.",
     "howto/sign-in-with-openid-connect.md"),
    ("sign_in_no_role", "The identity provider knows the person, but nothing that it says of them gives a role in a tenant that exists here.",
     "Put the person into a group that `oidc_role_map` names, and create the tenant if it is missing.", "howto/sign-in-with-openid-connect.md"),
    ("provider_unavailable", "The identity provider, or the address of the keys that sign JWTs, gave no usable reply in time.",
     "Try again soon; tokens and sign-in links work meanwhile. The log line `provider_unavailable` says what went wrong.",
     "howto/sign-in-with-openid-connect.md"),
    ("csrf", "A request of the page came without the page's own mark.", "Reload the page. Programs use a token, not the cookie.",
     "explanation/security.md"),
    ("invalid_json", "The body is not JSON.", "Send one JSON value in UTF-8.", "reference/http.md"),
    ("bad_request", "The request cannot be read.", "See the message.", "reference/http.md"),
    ("http_error", "The request was refused.", "See the status and the message.", "reference/http.md"),
    ("method_not_allowed", "This address does not take that method.", "The header `Allow` has those it takes.", "reference/http.md"),
    ("ambiguous_length", "The request says its length twice, with Content-Length and with Transfer-Encoding. Nothing was read of it, and the "
     "connection was closed.", "Send one of the two. If your client does, look at the proxies between it and the service.", "howto/reverse-proxy.md"),
    ("too_many_connections", "As many connections as may be open are busy with requests, of this address or in all.",
     "Close streams that nobody reads, and try again. Behind a proxy, name it in `PENSTOCK_TRUSTED_PROXIES`; else raise "
     "`PENSTOCK_CONNECTIONS_PER_ADDRESS` or `PENSTOCK_MAX_CONNECTIONS`.", "reference/settings.md"),
    ("too_slow", "The request's body did not arrive in time.", "Send it again, faster.", "reference/settings.md"),
    ("too_large", "The request is larger than the service takes.", "Send less at once; the limit is a setting.", "reference/settings.md"),
    ("unsupported_encoding", "The body is compressed in a way that the service does not take.", "Send it as it is.", "reference/http.md"),
    ("unsupported_media_type", "The body is not of a type that this address takes.", "Send `Content-Type: application/json`.", "reference/http.md"),
    ("bad_cursor", "The cursor is not one that this list gave out for these filters.", "Begin without a cursor.", "reference/http.md"),
    ("bad_idempotency_key", "The header `Idempotency-Key` is empty, too long or holds characters that it must not.",
     "Send 1 to 200 printable characters without spaces, new for each thing that you ask for; a UUID will do.", "reference/http.md"),
    ("idempotency_key_reused", "This `Idempotency-Key` was used for another request.",
     "Use a new key for a new request; the same key is for the same request, sent again.", "reference/http.md"),
    ("too_many_streams", "Too many live streams are open.", "Close one, or ask again later; the limit is a setting.", "reference/settings.md"),
    ("too_many_waits", "Too many requests of this token or tenant wait already, for a job to claim or for a reservation. Nothing was taken.",
     "Claim more jobs with one request (`limit`), or ask again after `Retry-After`; the limits are the settings `waits_per_token` and "
     "`waits_per_tenant`.", "reference/settings.md"),
    ("rate_limited", "Too many requests from this token or address.", "Wait for as long as `Retry-After` says.", "reference/settings.md"),
    ("internal_error", "Something broke that should not have. Nothing is known to have changed.",
     "Report it, with the X-Request-ID, the log line of that id, and what `penstock doctor` says.", "service/index.md"),
    # the client
    ("unreachable", "The client could not reach the service, or the connection broke before the whole answer had arrived.",
     "Check the address, the network and that the service runs: `GET /health/live` needs no token.", "service/index.md"),
    ("not_penstock", "Something answered the client that is not Penstock, for example the HTML page of a proxy or of a sign-in.",
     "Check the address, and what stands between the client and the service. The message has the status and the content type.",
     "service/index.md"),
    ("penstock_error", "Something Penstock refuses.", "The message says what was expected.", "reference/python.md"),
)  # fmt: skip

EXPLANATIONS = {code: Explanation(code, happened, do, page) for code, happened, do, page in _ALL}


def explain(code: str) -> Explanation:
    """
    >>> explain("not_found").page
    'explanation/security.md'
    """
    found = EXPLANATIONS.get(code.strip().replace("-", "_").lower())
    if found is None:
        near = get_close_matches(code, EXPLANATIONS, 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else " `penstock explain` lists all."
        raise InvalidInput(f"There is no error code {code!r}.{hint}")
    return found
