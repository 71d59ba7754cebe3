/** The path below which Penstock is served, as the server wrote it into the page: "" or such as "/penstock". */
export const ROOT = typeof document === "undefined" ? "" : (document.querySelector<HTMLMetaElement>('meta[name="penstock-root"]')?.content ?? "");
