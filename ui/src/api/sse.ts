/** One server-sent event. */
export interface Message {
  event: string;
  data: string;
  id: string | null;
}

/** The events of a stream, as they come. Read with fetch, because an EventSource cannot name a tenant. */
export async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value.replaceAll("\r\n", "\n");
      for (let end = buffer.indexOf("\n\n"); end !== -1; end = buffer.indexOf("\n\n")) {
        yield message(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

function message(block: string): Message {
  const made: Message = { event: "message", data: "", id: null };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "event") made.event = value;
    else if (name === "data") made.data += (made.data ? "\n" : "") + value;
    else if (name === "id") made.id = value;
  }
  return made;
}
