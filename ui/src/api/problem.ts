/** What the API answers when it refuses: RFC 9457, with a code and the path of each fault. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    readonly faults: readonly { path: string; message: string }[] = [],
  ) {
    super(detail);
    this.name = "Problem";
  }

  static from(status: number, body: unknown): Problem {
    const told = (typeof body === "object" && body !== null ? body : {}) as Partial<Problem>;
    return new Problem(
      status,
      told.code ?? "http_error",
      told.title ?? `The server answered ${status}`,
      told.detail ?? "It gave no reason. Try again; if it stays, look at the server's log.",
      Array.isArray(told.faults) ? told.faults : [],
    );
  }

  /** The message for one field of a form, if the server found fault with it. */
  fault(path: string): string | undefined {
    return this.faults.find((each) => each.path === path || each.path === `$.${path}`)?.message;
  }
}

export class Unreachable extends Problem {
  constructor() {
    super(0, "unreachable", "The server cannot be reached", "What you see may be old. The page tries again by itself.");
  }
}
