import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from "react";

export type Choice = "system" | "light" | "dark";

interface Theme {
  choice: Choice;
  resolved: "light" | "dark";
  choose: (choice: Choice) => void;
}

const STORED = "penstock.theme";
const Context = createContext<Theme | null>(null);
const dark = () => window.matchMedia("(prefers-color-scheme: dark)");

function stored(): Choice {
  const found = localStorage.getItem(STORED);
  return found === "light" || found === "dark" ? found : "system";
}

const resolve = (choice: Choice): "light" | "dark" => (choice === "system" ? (dark().matches ? "dark" : "light") : choice);

/** Before the first paint, so that the page never flashes in the other colours. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = resolve(stored());
}

export function ThemeProvider({ children }: { children: ReactNode }) {
  const [choice, setChoice] = useState<Choice>(stored);
  const [resolved, setResolved] = useState(() => resolve(choice));
  useEffect(() => {
    const update = () => {
      const next = resolve(choice);
      document.documentElement.dataset.theme = next;
      setResolved(next);
    };
    update();
    const media = dark();
    media.addEventListener("change", update);
    return () => media.removeEventListener("change", update);
  }, [choice]);
  const value = useMemo<Theme>(
    () => ({
      choice,
      resolved,
      choose: (next) => {
        localStorage.setItem(STORED, next);
        setChoice(next);
      },
    }),
    [choice, resolved],
  );
  return <Context.Provider value={value}>{children}</Context.Provider>;
}

export function useTheme(): Theme {
  const found = useContext(Context);
  if (!found) throw new Error("useTheme outside ThemeProvider");
  return found;
}
