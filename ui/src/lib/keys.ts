import { useEffect, useRef } from "react";

const TYPING = new Set(["INPUT", "TEXTAREA", "SELECT"]);

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (TYPING.has(target.tagName) || target.isContentEditable);
}

/** Keys while nobody types and no dialog is open. A name of two keys, such as `g j`, is one after the other. */
export function useKeys(keys: Record<string, (event: KeyboardEvent) => void>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "Enter" && event.target instanceof Element && event.target.closest("button, summary, a:not([data-job])")) return;
      if (document.querySelector('[role="dialog"],[role="menu"]')) return;
      const run = latest.current[`${before} ${event.key}`] ?? latest.current[event.key];
      before = event.key;
      clearTimeout(timer);
      timer = setTimeout(() => (before = ""), 900);
      if (run) {
        event.preventDefault();
        before = "";
        run(event);
      }
    };
    window.addEventListener("keydown", press);
    return () => {
      window.removeEventListener("keydown", press);
      clearTimeout(timer);
    };
  }, []);
}
