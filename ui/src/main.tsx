import "./styles/fonts.css";
import "./styles/tokens.css";
import "./styles/base.css";

import { CSPProvider } from "@base-ui/react/csp-provider";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router";

import { Problem } from "./api/problem";
import { App } from "./app";
import { ROOT } from "./lib/root";
import { applyTheme, ThemeProvider } from "./lib/theme";
import { Toasts } from "./ui/float";

applyTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: true,
      // Without a network a request fails, and the page says so, instead of waiting in silence.
      networkMode: "always",
      // What was refused stays refused; what could not be reached is tried again.
      retry: (failures, error) => failures < 3 && (!(error instanceof Problem) || error.status === 0 || error.status >= 502),
    },
    mutations: { networkMode: "always" },
  },
});

const root = document.getElementById("root");
if (!root) throw new Error("The page has no #root");
// What a boundary catches is shown on the page, so the console need not call it an error.
createRoot(root, { onCaughtError: (error) => console.info(error) }).render(
  <StrictMode>
    {/* The policy allows no style elements: everything is in our own CSS files. */}
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queries}>
        <ThemeProvider>
          <Toasts>
            <BrowserRouter basename={ROOT || "/"}>
              <App />
            </BrowserRouter>
          </Toasts>
        </ThemeProvider>
      </QueryClientProvider>
    </CSPProvider>
  </StrictMode>,
);
