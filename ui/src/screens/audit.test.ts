import { expect, test } from "vitest";

import { asked, exportAddress } from "./audit";

const none = { actor: "", action: "", text: "", since: "", until: "" };

test("only filters that are set are asked for", () => {
  expect(asked({ ...none, actor: " ann ", text: " " })).toEqual({ actor: "ann" });
});

test("the address of an export", () => {
  expect(exportAddress({ text: "a&b" }, false, "acme", "csv")).toBe("/api/v1/audit/export?text=a%26b&format=csv");
  expect(exportAddress({}, true, "acme", "jsonl")).toBe("/api/v1/admin/audit/export?tenant=acme&format=jsonl");
  expect(exportAddress({}, true, null, "jsonl")).toBe("/api/v1/admin/audit/export?format=jsonl");
});
