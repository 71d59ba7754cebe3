import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { useNavigate } from "react-router";

import { apiFor, taken } from "../api/client";
import { SESSION, signIn } from "../api/session";
import { ROOT } from "../lib/root";
import { Button } from "../ui/button";
import { TextField } from "../ui/form";
import { Mark } from "../ui/mark";
import { Fault } from "../ui/panel";
import css from "./signin.module.css";

/** The secret of a sign-in link (`/sign-in#…` or `#token=…`), taken out of the address at once so that it stays in no history. */
function secretFromAddress(): string | null {
  const hash = decodeURIComponent(location.hash.slice(1));
  const found = new URLSearchParams(hash).get("token") ?? (location.pathname === `${ROOT}/sign-in` ? hash : "");
  if (hash !== "") history.replaceState(null, "", location.pathname + location.search);
  return found === "" ? null : found;
}

/** The identity provider to sign in with, where the operator has set one up. */
function OpenId({ next }: { next: string | null }) {
  const { data } = useQuery({ queryKey: ["sign-in"], queryFn: () => taken(apiFor(null).GET("/api/v1/sign-in")), retry: false });
  if (!data?.openid) return null;
  const { name, url } = data.openid;
  return (
    <a className={css.provider} href={`${url}?return_to=${encodeURIComponent(next ?? "/")}`}>
      Sign in with {name}
    </a>
  );
}

export function SignIn({ next }: { next: string | null }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const tried = useRef(false);

  const enter = async (given: string) => {
    setBusy(true);
    setError(null);
    try {
      const session = await signIn(given.trim());
      queries.setQueryData(SESSION, session);
      await navigate(next ?? `/t/${encodeURIComponent(session.tenant ?? "default")}/overview`, { replace: true });
    } catch (caught) {
      setError(caught);
    } finally {
      setBusy(false);
    }
  };

  useEffect(() => {
    if (tried.current) return;
    tried.current = true;
    const given = secretFromAddress();
    if (given) void enter(given);
  });

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (token.trim() !== "") void enter(token);
  };

  return (
    <main className={css.page}>
      <div className={css.card}>
        <div className={css.brand}>
          <Mark size={36} />
          <div>
            <h1>Penstock</h1>
            <p className="quiet">Jobs in your own database</p>
          </div>
        </div>
        <OpenId next={next} />
        <form className={css.form} onSubmit={submit}>
          <TextField
            label="API token"
            type="password"
            autoComplete="current-password"
            // oxlint-disable-next-line jsx-a11y/no-autofocus -- the only field of the page
            autoFocus
            value={token}
            onChange={(event) => setToken(event.target.value)}
            hint={
              <>
                Printed by <code>penstock up</code>, or made with <code>penstock tokens create</code>.
              </>
            }
          />
          {error !== null && <Fault error={error} />}
          <Button type="submit" variant="primary" disabled={busy || token.trim() === ""}>
            {busy ? "Signing in…" : "Sign in"}
          </Button>
        </form>
      </div>
    </main>
  );
}
