import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect } from "react";
import { Navigate, Route, Routes, useLocation } from "react-router";

import { SESSION, SessionProvider, useWhoAmI } from "./api/session";
import { Layout } from "./layout";
import { SignIn } from "./screens/signin";
import { Empty, Fault, Skeleton } from "./ui/panel";

const Overview = lazy(() => import("./screens/overview"));
const Jobs = lazy(() => import("./screens/jobs"));
const JobScreen = lazy(() => import("./screens/job"));
const Definitions = lazy(() => import("./screens/definitions"));
const Tokens = lazy(() => import("./screens/tokens"));
const Audit = lazy(() => import("./screens/audit"));
const Workers = lazy(() => import("./screens/workers"));
const Groups = lazy(() => import("./screens/groups"));
const GroupScreen = lazy(() => import("./screens/groups").then((found) => ({ default: found.GroupScreen })));
const Triggers = lazy(() => import("./screens/triggers"));
const TriggerScreen = lazy(() => import("./screens/triggers/trigger"));
const Webhooks = lazy(() => import("./screens/webhooks"));
const Pipelines = lazy(() => import("./screens/pipelines"));
const Tenants = lazy(() => import("./screens/tenants"));

export function App() {
  const session = useWhoAmI();
  const queries = useQueryClient();
  const { pathname, search } = useLocation();

  useEffect(() => {
    const signedOut = () => queries.setQueryData(SESSION, null);
    window.addEventListener("penstock:signed-out", signedOut);
    return () => window.removeEventListener("penstock:signed-out", signedOut);
  }, [queries]);

  if (session.isPending) return null;
  if (session.error) return <Fault error={session.error} retry={() => void session.refetch()} />;
  if (session.data === null) return <SignIn next={pathname === "/" || pathname === "/sign-in" ? null : pathname + search} />;
  const me = session.data;
  const home = `/t/${encodeURIComponent(me.tenant ?? "default")}/overview`;
  return (
    <SessionProvider session={me}>
      <Suspense fallback={<Skeleton />}>
        <Routes>
          <Route path="/t/:tenant" element={<Layout />}>
            <Route index element={<Navigate to="overview" replace />} />
            <Route path="overview" element={<Overview />} />
            <Route path="jobs" element={<Jobs />} />
            <Route path="jobs/:id" element={<JobScreen />} />
            <Route path="groups" element={<Groups />} />
            <Route path="groups/:id" element={<GroupScreen />} />
            <Route path="workers" element={<Workers />} />
            <Route path="triggers" element={<Triggers />} />
            <Route path="triggers/:id" element={<TriggerScreen />} />
            <Route path="webhooks" element={<Webhooks />} />
            <Route path="pipelines" element={<Pipelines />} />
            <Route path="definitions" element={<Definitions />} />
            <Route path="tokens" element={<Tokens />} />
            <Route path="audit" element={<Audit />} />
            <Route path="tenants" element={<Tenants />} />
            <Route path="*" element={<Empty title="There is no such page">Choose one from the menu.</Empty>} />
          </Route>
          <Route path="*" element={<Navigate to={home} replace />} />
        </Routes>
      </Suspense>
    </SessionProvider>
  );
}
