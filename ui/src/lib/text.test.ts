import { describe, expect, it } from "vitest";

import { json, line, lines, plain, webAddress } from "./text";

describe("text from jobs", () => {
  it("drops terminal codes and shows other control codes", () => {
    expect(plain("\u001b[31mred\u001b[0m")).toBe("red");
    expect(plain("\u001b]0;title\u0007ok")).toBe("ok");
    expect(plain("a\u0000b\u0008c")).toBe("a\u2400b\u2408c");
    expect(plain("one\r\ntwo\rthree")).toBe("one\ntwo\nthree");
  });

  it("does not let direction marks turn the line round", () => {
    expect(plain("invoice\u202egpj.exe")).toBe("invoice\u2422gpj.exe");
  });

  it("cuts what is long and says so", () => {
    const made = lines("x".repeat(1_000_000) + "\nshort\n");
    expect(made).toHaveLength(2);
    expect(made[0]?.text).toHaveLength(2000);
    expect(made[0]?.cut).toBe(998_000);
    expect(line("a\nb\n" + "c".repeat(2000), 10)).toBe("a b cccccc…");
    expect(json({ a: "x".repeat(500) }, 100).cut).toBeGreaterThan(0);
  });

  it("links only to the web", () => {
    expect(webAddress("https://example.com/a")).toBe("https://example.com/a");
    expect(webAddress("javascript:alert(1)")).toBeNull();
    expect(webAddress("data:text/html,x")).toBeNull();
  });
});
