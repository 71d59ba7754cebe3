import { describe, expect, it } from "vitest";

import { toPayload } from "./schemaform";

const schema = {
  properties: { id: { type: "integer" }, name: { type: "string" }, on: { type: "boolean" }, size: { enum: [1, 2] }, more: { type: "object" }, maybe: { type: ["number", "null"] } },
  required: ["id"],
};

describe("toPayload", () => {
  it("makes values of the schema's types, and leaves out what is empty", () => {
    const { payload, faults } = toPayload(schema, { id: "7", name: "x", on: "true", size: "2", more: '{"a":1}', maybe: "0.5" });
    expect(faults).toEqual({});
    expect(payload).toEqual({ id: 7, name: "x", on: true, size: 2, more: { a: 1 }, maybe: 0.5 });
    expect(toPayload(schema, { id: "7" }).payload).toEqual({ id: 7 });
  });

  it("says what is wrong, field by field", () => {
    expect(toPayload(schema, { id: "1.5", more: "{", maybe: "lots" }).faults).toEqual({
      id: "A whole number is needed.",
      more: 'This is not JSON. Text goes in quotes: "like this".',
      maybe: "This is not a number.",
    });
    expect(toPayload(schema, {}).faults).toEqual({ id: "This is needed." });
  });
});
