import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.PENSTOCK_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  // The page is served at "/" beside the API, under a policy that allows only its own files: nothing is inlined.
  build: {
    outDir: "../src/penstock/server/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900,
  },
  server: { proxy: { "/api": server, "/health": server } },
});
