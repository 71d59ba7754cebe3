// @vitest-environment happy-dom
import { Suspense } from "react";
import { describe, expect, it, vi } from "vitest";

import { failed } from "../api/connection";
import { Boundary } from "../ui/boundary";
import { button, draw, press, serve, shown, until } from "../testing";
import { loaded, Screen } from "./screens";

const Hello = () => <p>hello</p>;
const gone = () => Promise.reject(new TypeError("Failed to fetch dynamically imported module"));

describe("a screen that cannot be loaded", () => {
  it("is tried twice", async () => {
    const load = vi.fn<() => Promise<{ default: typeof Hello }>>().mockRejectedValueOnce(new Error("a moment without a network")).mockResolvedValue({ default: Hello });
    expect((await loaded(load)).default).toBe(Hello);
  });

  it("reloads the document once when the server is there and the part is not", async () => {
    serve((_method, path) => (path === "/health/live" ? {} : undefined));
    const reload = vi.fn<() => void>();
    void loaded(gone, reload);
    await until(() => reload.mock.calls.length === 1);
    await expect(loaded(gone, reload)).rejects.toThrow("dynamically imported");
    expect(reload).toHaveBeenCalledTimes(1);
  });

  it("does not reload while the server is away, since that would leave a blank page", async () => {
    serve(() => "unreachable");
    const reload = vi.fn<() => void>();
    await expect(loaded(gone, reload)).rejects.toThrow("dynamically imported");
    expect(reload).not.toHaveBeenCalled();
  });

  it("says so inside the page, and is shown by a second try", async () => {
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    serve(() => "unreachable");
    let there = false;
    const load = () => (there ? Promise.resolve({ default: Hello }) : gone());
    await draw(
      <Boundary>
        <Suspense fallback="…">
          <Screen load={load} />
        </Suspense>
      </Boundary>,
    );
    await until(() => shown().includes("This screen could not be shown"));
    expect(button("Reload the page")).toBeTruthy();
    there = true;
    await press("Try again");
    await until(() => shown().includes("hello"));
  });

  it("comes back by itself when the server does", async () => {
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    let there = false;
    serve((_method, path) => (there && path === "/health/ready" ? {} : "unreachable"));
    const load = () => (there ? Promise.resolve({ default: Hello }) : gone());
    await draw(
      <Boundary>
        <Suspense fallback="…">
          <Screen load={load} />
        </Suspense>
      </Boundary>,
    );
    await until(() => shown().includes("This screen could not be shown"));
    const connected = failed();
    there = true;
    await connected;
    await until(() => shown().includes("hello"));
    expect(shown()).not.toContain("could not be shown");
  });
});
