import { useQuery } from "@tanstack/react-query";
import {
  Boxes, Building2, CalendarClock, ChartNoAxesCombined, ChevronsUpDown, CircleUserRound, Clock3, KeyRound, Keyboard, Layers, ListChecks, LogOut, Menu as MenuIcon,
  MonitorCog, MonitorSmartphone, Moon, ScrollText, Sun, Waypoints, Webhook,
} from "lucide-react";
import { Suspense, useEffect, useState } from "react";
import { Navigate, NavLink, Outlet, useLocation, useNavigate } from "react-router";

import { useConnection } from "./api/connection";
import { LiveProvider, useLiveState } from "./api/live";
import { useIdleEnd, useMay, useScope, useSession, useSignOut } from "./api/session";
import { apiFor, type Need, taken } from "./api/client";
import css from "./layout.module.css";
import { useKeys } from "./lib/keys";
import { useTheme } from "./lib/theme";
import { offset, viewerZone } from "./lib/time";
import { useZone, ZoneProvider } from "./lib/zone";
import { Sessions } from "./screens/sessions";
import { Banner } from "./ui/banner";
import { Boundary } from "./ui/boundary";
import { Button, IconButton } from "./ui/button";
import { Dialog, Menu, useTell } from "./ui/float";
import { Mark } from "./ui/mark";
import { Skeleton } from "./ui/panel";
import { Line } from "./ui/text";

interface Place {
  path: string;
  name: string;
  icon: typeof Boxes;
  need: Need;
  key?: string;
}

const PLACES: readonly { group: string | null; places: readonly Place[] }[] = [
  {
    group: null,
    places: [
      { path: "overview", name: "Overview", icon: ChartNoAxesCombined, need: "view", key: "o" },
      { path: "jobs", name: "Jobs", icon: ListChecks, need: "view", key: "j" },
      { path: "groups", name: "Groups", icon: Layers, need: "view", key: "r" },
      { path: "triggers", name: "Triggers", icon: CalendarClock, need: "view", key: "t" },
      { path: "definitions", name: "Definitions", icon: Boxes, need: "view", key: "d" },
      { path: "webhooks", name: "Webhooks", icon: Webhook, need: "manage", key: "h" },
    ],
  },
  {
    group: "Tenant",
    places: [
      { path: "tokens", name: "Tokens", icon: KeyRound, need: "manage" },
      { path: "audit", name: "Audit", icon: ScrollText, need: "manage", key: "a" },
    ],
  },
  {
    group: "Installation",
    places: [
      { path: "workers", name: "Workers", icon: MonitorCog, need: "view", key: "w" },
      { path: "pipelines", name: "Pipelines", icon: Waypoints, need: "admin", key: "p" },
      { path: "tenants", name: "Tenants", icon: Building2, need: "admin" },
    ],
  },
];

export function Layout() {
  const scope = useScope();
  const session = useSession();
  const tenants = useTenants();
  const zone = tenants.find((each) => each.slug === scope.tenant)?.timezone ?? session.timezone;
  // Everyone but a super admin has one tenant; an address that names another leads home and says nothing of it.
  if (scope.header === null && session.tenant !== null && scope.tenant !== session.tenant) {
    return <Navigate to={`/t/${encodeURIComponent(session.tenant)}/overview`} replace />;
  }
  return (
    <ZoneProvider tenantZone={zone}>
      <LiveProvider>
        <Shell tenantZone={zone} />
      </LiveProvider>
    </ZoneProvider>
  );
}

/** Every tenant, for a super admin; others have their own and see no other. */
function useTenants() {
  const may = useMay();
  const { data } = useQuery({
    queryKey: ["tenants"],
    queryFn: () => taken(apiFor(null).GET("/api/v1/admin/tenants")),
    enabled: may("admin"),
    staleTime: 30_000,
  });
  return data?.items ?? [];
}

function Shell({ tenantZone }: { tenantZone: string | null | undefined }) {
  const scope = useScope();
  const may = useMay();
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const [open, setOpen] = useState(false);
  const [help, setHelp] = useState(false);
  const { lostAt } = useConnection();
  const allowed = PLACES.map(({ group, places }) => ({ group, places: places.filter((place) => may(place.need)) })).filter(({ places }) => places.length > 0);
  const current = allowed.flatMap(({ places }) => places).find((place) => pathname.includes(`/${place.path}`));

  useEffect(() => setOpen(false), [pathname]);
  useEffect(() => {
    document.title = `${current?.name ?? "Penstock"} · ${scope.tenant} · Penstock`;
  }, [current, scope.tenant]);

  useKeys({
    "?": () => setHelp(true),
    ...Object.fromEntries(allowed.flatMap(({ places }) => places).filter((place) => place.key).map((place) => [`g ${place.key}`, () => void navigate(scope.to(place.path))])),
  });

  return (
    <div className={css.shell}>
      <a className={css.skip} href="#content">
        Skip to the content
      </a>
      {open && <button type="button" className={css.veil} aria-label="Close the menu" onClick={() => setOpen(false)} />}
      <nav className={css.side} data-open={open} aria-label="Main">
        <NavLink to={scope.to("overview")} className={css.brand}>
          <Mark />
          Penstock
        </NavLink>
        {allowed.map(({ group, places }) => (
          <div key={group ?? ""}>
            {group && <div className={css.group}>{group}</div>}
            {places.map(({ path, name, icon: Icon }) => (
              <NavLink key={path} to={scope.to(path)} className={css.link}>
                <Icon size={16} aria-hidden="true" />
                {name}
              </NavLink>
            ))}
          </div>
        ))}
      </nav>
      <div className={css.main}>
        <header className={css.top}>
          <div className={css.tenant}>
            <IconButton className={css.burger} label="Menu" icon={<MenuIcon size={18} />} onClick={() => setOpen(true)} />
            <TenantSwitch />
          </div>
          <div className="row">
            <LiveSign />
            <span className={css.zone}>
              <ZoneSwitch tenantZone={tenantZone} />
            </span>
            <IconButton label="Keyboard shortcuts" icon={<Keyboard size={17} />} onClick={() => setHelp(true)} />
            <ThemeSwitch />
            <Account />
          </div>
        </header>
        <main className={css.content} id="content" tabIndex={-1} data-old={lostAt !== null}>
          <Banner />
          <Boundary key={pathname}>
            <Suspense fallback={<Skeleton />}>
              <Outlet />
            </Suspense>
          </Boundary>
        </main>
      </div>
      <Shortcuts open={help} onClose={() => setHelp(false)} places={allowed.flatMap(({ places }) => places)} />
    </div>
  );
}

function TenantSwitch() {
  const scope = useScope();
  const tenants = useTenants();
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const name = tenants.find((each) => each.slug === scope.tenant)?.name ?? scope.tenant;
  if (tenants.length === 0) return <Line length={40}>{name}</Line>;
  const screen = pathname.split("/")[3] ?? "overview";
  return (
    <Menu
      heading="Act for a tenant"
      trigger={
        <Button variant="ghost" aria-label={`Tenant: ${name}`}>
          <Building2 size={15} aria-hidden="true" />
          <Line length={40}>{name}</Line>
          <ChevronsUpDown size={14} aria-hidden="true" />
        </Button>
      }
      items={tenants.map((each) => ({ label: `${each.name} (${each.slug})`, run: () => void navigate(`/t/${encodeURIComponent(each.slug)}/${screen}`) }))}
    />
  );
}

function LiveSign() {
  const live = useLiveState();
  const { lostAt } = useConnection();
  const on = live && lostAt === null;
  const [name, title] =
    lostAt !== null ? ["Not connected", "The server cannot be reached"] : on ? ["Live", "Changes arrive as they happen"] : ["Polling", "No live connection; the page asks every few seconds"];
  return (
    <span className={css.live} data-on={on} title={title}>
      <i aria-hidden="true" />
      <span>{name}</span>
    </span>
  );
}

function ZoneSwitch({ tenantZone }: { tenantZone: string | null | undefined }) {
  const zone = useZone();
  return (
    <Menu
      heading="Show times in"
      trigger={
        <Button variant="ghost" small aria-label={`Times in ${zone.name}`}>
          <Clock3 size={15} aria-hidden="true" />
          {offset(new Date(), zone.zone)}
        </Button>
      }
      items={[
        { label: `${zone.choice === "viewer" ? "✓ " : ""}My zone (${viewerZone()})`, run: () => zone.choose("viewer") },
        { label: `${zone.choice === "tenant" ? "✓ " : ""}The tenant's zone (${tenantZone ?? "UTC"})`, run: () => zone.choose("tenant") },
      ]}
    />
  );
}

function ThemeSwitch() {
  const theme = useTheme();
  const next = theme.resolved === "dark" ? "light" : "dark";
  return <IconButton label={`Switch to ${next} colours`} icon={theme.resolved === "dark" ? <Sun size={17} /> : <Moon size={17} />} onClick={() => theme.choose(next)} />;
}

function Account() {
  const session = useSession();
  const signOut = useSignOut();
  const tell = useTell();
  const [sessions, setSessions] = useState(false);
  useIdleEnd(session.idle_seconds, signOut);
  return (
    <>
      <Menu
        heading={
          <>
            <Line length={60}>{session.label}</Line>
            <br />
            {session.role.replace("_", " ")}
          </>
        }
        trigger={<IconButton label="Account" icon={<CircleUserRound size={18} />} />}
        items={[
          { label: "Your sessions", icon: <MonitorSmartphone size={15} />, run: () => setSessions(true) },
          { label: "Sign out", icon: <LogOut size={15} />, run: () => void signOut().catch(tell.failed) },
        ]}
      />
      {sessions && <Sessions onClose={() => setSessions(false)} />}
    </>
  );
}

const SHORTCUTS: readonly (readonly [string, string])[] = [
  ["/", "Search jobs"],
  ["j  k", "Next and previous row"],
  ["enter", "Open the row"],
  ["x", "Select the row"],
  ["esc", "Close, or clear the selection"],
  ["?", "This list"],
];

function Shortcuts({ open, onClose, places }: { open: boolean; onClose: () => void; places: readonly Place[] }) {
  const rows = [...SHORTCUTS, ...places.filter((place) => place.key).map((place) => [`g  ${place.key}`, `Go to ${place.name}`] as const)];
  return (
    <Dialog open={open} onClose={onClose} title="Keyboard shortcuts">
      <table>
        <tbody>
          {rows.map(([keys, what]) => (
            <tr key={what}>
              <td>
                {keys.split("  ").map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Dialog>
  );
}
