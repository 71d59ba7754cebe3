import { describe, expect, it } from "vitest";

import type { Job, Schemas } from "./client";
import { mergeHead } from "./jobs";

const job = (id: string, status = "queued"): Job => ({ id, status }) as unknown as Job;
const page = (items: Job[], more: boolean): Schemas["JobPage"] => ({ items, limit: 3, offset: 0, next_cursor: more ? (items.at(-1)?.id ?? null) : null });
const ids = (pages: ReturnType<typeof mergeHead>) => pages.pages.flatMap((each) => each.items).map((each) => each.id);

describe("mergeHead", () => {
  const old = { pages: [page([job("9"), job("8"), job("7")], true), page([job("6"), job("5")], false)], pageParams: [null, "7"] };

  it("puts new rows on top and keeps every row below", () => {
    expect(ids(mergeHead(old, page([job("a"), job("9"), job("8")], true)))).toEqual(["a", "9", "8", "7", "6", "5"]);
  });

  it("changes a row in place and keeps the others' identity", () => {
    const merged = mergeHead(old, page([job("9", "running"), job("8"), job("7")], true));
    expect(merged.pages[0]?.items[0]?.status).toBe("running");
    expect(merged.pages[0]?.items[1]).toBe(old.pages[0]?.items[1]);
  });

  it("drops rows that no longer match", () => {
    expect(ids(mergeHead(old, page([job("9"), job("7"), job("6")], true)))).toEqual(["9", "7", "6", "5"]);
  });

  it("starts anew when so many came that nothing overlaps", () => {
    expect(ids(mergeHead(old, page([job("f"), job("e"), job("d")], true)))).toEqual(["f", "e", "d"]);
  });

  it("is the fresh page when that is all there is", () => {
    expect(ids(mergeHead(old, page([job("9")], false)))).toEqual(["9"]);
  });
});
