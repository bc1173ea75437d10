/** Instants are ISO strings in documents and milliseconds in rules; these two turn one into the other. */

export const iso = (ms: number) => new Date(ms).toISOString();

/** `2026-01-02 03:04:05 UTC`, for a sentence. */
export function utcText(at: string | number): string {
  const text = typeof at === 'number' ? iso(at) : at;
  return `${text.slice(0, 19).replace('T', ' ')} UTC`;
}

export const msOf = (instant: string) => Date.parse(instant);

/** Whether more than `limit_s` seconds have passed since `instant`; an instant that never was has not passed. */
export function isOlderThan(instant: string | null, limit_s: number, now: number): boolean {
  return instant !== null && now - msOf(instant) > limit_s * 1000;
}
