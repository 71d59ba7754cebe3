/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.PENSTOCK_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  // The page is served beside the API, under a policy that allows only its own files: nothing is inlined. Where it is served, the
  // server writes into index.html; everything else is found relative to the file that names it.
  base: "./",
  build: {
    outDir: "../src/penstock/server/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900,
  },
  test: { testTimeout: 30_000 },
  server: { proxy: { "/api": server, "/health": server } },
});
