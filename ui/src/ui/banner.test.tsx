// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";

import { apiFor, taken } from "../api/client";
import { useRead } from "../api/read";
import { draw, press, serve, shown, until } from "../testing";
import { Banner } from "./banner";
import { Button } from "./button";
import { Fault } from "./panel";

function Queues() {
  const { data, error, refetch } = useRead({ queryKey: ["queues"], queryFn: () => taken(apiFor(null).GET("/api/v1/queues")) });
  return (
    <>
      <Banner />
      <Button onClick={() => void refetch()}>Read</Button>
      {error ? <Fault error={error} /> : <p>{data ? data.items.map((each) => each.name).join() : "Loading"}</p>}
    </>
  );
}

const QUEUES = { body: { items: [{ name: "mail", paused: false }] } };
const DOWN = { status: 503, body: { code: "database_unavailable", title: "Database unavailable", detail: "Try again." } };

describe("the banner", () => {
  it("says since when the server is away, keeps what was read, and goes when it is back", async () => {
    let up = true;
    serve((_method, path) => (!up ? "unreachable" : path === "/queues" ? QUEUES : {}));
    await draw(<Queues />);
    await until(() => shown().includes("mail"));
    up = false;
    await press("Read");
    await until(() => /Not connected since \d\d:\d\d:\d\d/.test(shown()));
    expect(shown()).toContain("mail");
    up = true;
    await until(() => !shown().includes("Not connected"));
    expect(shown()).toContain("mail");
  });

  it("says which part is old when the server is there and one read fails", async () => {
    let broken = false;
    serve((_method, path) => (path === "/queues" ? (broken ? DOWN : QUEUES) : {}));
    await draw(<Queues />);
    await until(() => shown().includes("mail"));
    expect(shown()).not.toContain("Part of this screen");
    broken = true;
    await press("Read");
    await until(() => /Part of this screen is as it was at .*Database unavailable/.test(shown()));
    expect(shown()).toContain("mail");
  });

  it("leaves it to the panel that was never filled to say why", async () => {
    serve((_method, path) => (path === "/queues" ? DOWN : {}));
    await draw(<Queues />);
    await until(() => shown().includes("Database unavailable"));
    expect(shown()).not.toContain("Part of this screen");
    expect(shown()).not.toContain("Loading");
  });
});
