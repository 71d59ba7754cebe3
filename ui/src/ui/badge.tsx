import type { ReactNode } from "react";

import css from "./badge.module.css";

export type Tone = "queued" | "running" | "succeeded" | "failed" | "dead" | "neutral";

const TONES: Record<string, Tone> = {
  queued: "queued",
  pending: "queued",
  running: "running",
  reserved: "running",
  succeeded: "succeeded",
  success: "succeeded",
  completed: "succeeded",
  delivered: "succeeded",
  fired: "succeeded",
  failed: "failed",
  partial: "failed",
  timeout: "failed",
  skipped: "neutral",
  dead_letter: "dead",
  error: "dead",
};

const NAMES: Record<string, string> = { dead_letter: "dead letter" };

export const toneOf = (status: string): Tone => TONES[status] ?? "neutral";
export const nameOf = (status: string): string => NAMES[status] ?? status;

export function Badge({ tone = "neutral", children }: { tone?: Tone; children: ReactNode }) {
  return (
    <span className={`${css.badge} ${css[tone] ?? ""}`}>
      <span className={css.dot} aria-hidden="true" />
      {children}
    </span>
  );
}

export function Status({ of }: { of: string }) {
  return <Badge tone={toneOf(of)}>{nameOf(of)}</Badge>;
}
