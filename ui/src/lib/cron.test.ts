import { describe, expect, it } from "vitest";

import { inWords } from "./cron";

describe("cron in words", () => {
  it("says what an expression means", () => {
    expect(inWords("0 2 * * *")).toBe("At 02:00");
    expect(inWords("*/15 9-17 * * 1-5")).toContain("Monday through Friday");
  });

  it("says nothing of what the server would refuse", () => {
    expect(inWords("* * * * * *")).toBeNull();
    expect(inWords("every day")).toBeNull();
    expect(inWords("")).toBeNull();
  });
});
