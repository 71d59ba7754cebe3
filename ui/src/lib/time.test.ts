import { describe, expect, it } from "vitest";

import { brief, calendar, duration, exact, knownZone, offset, relative } from "./time";

describe("times", () => {
  it("shows the moment in the zone, with the offset on either side of a clock change", () => {
    expect(exact("2026-02-16T10:30:01Z", "America/New_York")).toBe("2026-02-16 05:30:01");
    expect(calendar("2026-03-08T06:59:00Z", "America/New_York")).toBe("Sun 2026-03-08 01:59 UTC-5");
    expect(calendar("2026-03-08T07:00:00Z", "America/New_York")).toBe("Sun 2026-03-08 03:00 UTC-4");
    expect(offset(new Date("2026-02-16T00:00:00Z"), "UTC")).toBe("UTC");
    expect(offset(new Date("2026-02-16T00:00:00Z"), "America/St_Johns")).toBe("UTC-3:30");
  });

  it("leaves the day out when it is today", () => {
    const now = new Date("2026-02-16T12:00:00Z");
    expect(brief("2026-02-16T10:30:01Z", now, "UTC")).toBe("10:30:01");
    expect(brief("2026-02-15T10:30:01Z", now, "UTC")).toBe("02-15 10:30:01");
    expect(brief("2025-12-31T10:30:01Z", now, "UTC")).toBe("2025-12-31");
  });

  it("writes spans short", () => {
    expect([0.0124, 4.26, 42, 200, 3600, 7500, 356_400].map(duration)).toEqual(["12 ms", "4.3 s", "42 s", "3 m 20 s", "1 h", "2 h 5 m", "4 d 3 h"]);
    const now = new Date("2026-02-16T12:00:00Z");
    expect(relative("2026-02-16T12:03:10Z", now)).toBe("in 3 m");
    expect(relative("2026-02-16T11:59:48Z", now)).toBe("12 s ago");
    expect(relative(now, now)).toBe("now");
  });

  it("knows which zones the browser knows", () => {
    expect(knownZone("Europe/Berlin")).toBe("Europe/Berlin");
    expect(knownZone("Mars/Olympus")).toBeUndefined();
    expect(knownZone(null)).toBeUndefined();
  });
});
