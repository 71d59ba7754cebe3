import { describe, expect, it } from "vitest";

import { moment, parse, suggest, toFilter, valueOf, withTerm } from "./query";

const NOW = new Date("2026-02-16T12:00:00Z");

describe("parse", () => {
  it("splits fields and text, keeping quoted spaces together", () => {
    const { terms, faults } = parse('status:failed key:sync-* "disk full" correlation:"a b"');
    expect(faults).toEqual([]);
    expect(terms.map(({ field, value }) => [field, value])).toEqual([
      ["status", "failed"],
      ["key", "sync-*"],
      ["text", "disk full"],
      ["correlation", "a b"],
    ]);
  });

  it("says which word is no field, and leaves addresses alone", () => {
    expect(parse("stauts:failed").faults[0]).toContain("stauts:");
    expect(parse("https://a.example/x").faults).toEqual([]);
  });

  it("survives an unclosed quote and a lone colon", () => {
    expect(parse('key:"half').terms[0]?.value).toBe("half");
    expect(parse(":").terms[0]?.value).toBe(":");
    expect(parse("status:").terms).toEqual([]);
  });
});

describe("toFilter", () => {
  it("asks the API for what was written", () => {
    const { filter, faults } = toFilter("status:failed,dead source:event key:sync-* after:2h timed out", NOW);
    expect(faults).toEqual([]);
    expect(filter).toEqual({
      status: ["failed", "dead_letter"],
      source: "event",
      key: "sync-*",
      created_after: "2026-02-16T10:00:00.000Z",
      search: "timed out",
    });
  });

  it("refuses unknown statuses, sources, times and ids with a reason", () => {
    for (const text of ["status:broken", "source:cron", "after:soon", "group:7"]) {
      const { filter, faults } = toFilter(text, NOW);
      expect(faults).toHaveLength(1);
      expect(filter).toEqual({});
    }
  });
});

describe("moment", () => {
  it("reads dates, ISO times and ages", () => {
    expect(moment("7d", NOW)?.toISOString()).toBe("2026-02-09T12:00:00.000Z");
    expect(moment("2026-02-16T10:30:00Z", NOW)?.toISOString()).toBe("2026-02-16T10:30:00.000Z");
    expect(moment("2026-13-45", NOW)).toBeNull();
    expect(moment("tomorrowish", NOW)).toBeNull();
  });
});

describe("withTerm", () => {
  it("sets, replaces and removes a field without touching the rest", () => {
    expect(withTerm("key:a text", "status", "failed")).toBe("status:failed key:a text");
    expect(withTerm("status:failed key:a", "status", "queued")).toBe("status:queued key:a");
    expect(withTerm("status:failed key:a", "status", null)).toBe("key:a");
    expect(valueOf("status:failed key:a", "status")).toBe("failed");
  });
});

describe("suggest", () => {
  const known = { keys: ["sync-dropbox", "resize"], queues: ["default"] };
  it("offers fields, then values", () => {
    expect(suggest("st", 2, known).map((each) => each.label)).toEqual(["status:"]);
    expect(suggest("key:s", 5, known)[0]).toMatchObject({ label: "key:sync-dropbox", text: "key:sync-dropbox ", caret: 17 });
    expect(suggest("status:de", 9, known)[0]?.label).toBe("status:dead_letter");
  });
  it("completes in the middle and keeps what follows", () => {
    expect(suggest("key: text", 4, known)[0]).toMatchObject({ text: "key:sync-dropbox text", caret: 17 });
    expect(suggest("sta key:resize", 3, known)[0]).toMatchObject({ text: "status: key:resize", caret: 7 });
  });
});
