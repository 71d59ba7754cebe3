const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value: number): string => whole.format(value);
export const compact = (value: number): string => (Math.abs(value) < 10_000 ? whole.format(value) : short.format(value));
export const plural = (value: number, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;

/** A count that stops at a cap says so. */
export const capped = (value: number, cap: number): string => (value >= cap ? `${count(cap)}+` : count(value));
