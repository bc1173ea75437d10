export type Difference = {key: string; wanted: unknown; stored: unknown};

/** Keys with other values in the two specs: of both, or of the named keys alone. */
export function differencesOf(wanted: object, stored: object, only?: readonly string[]): Difference[] {
  const [of_wanted, of_stored] = [wanted, stored] as [Record<string, unknown>, Record<string, unknown>];
  const keys = only ?? [...new Set([...Object.keys(of_wanted), ...Object.keys(of_stored)])];
  return keys
    .map(key => ({key, wanted: of_wanted[key], stored: of_stored[key]}))
    .filter(({wanted, stored}) => canonical(wanted) !== canonical(stored));
}

function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_, inner: unknown) =>
      inner !== null && typeof inner === 'object' && !Array.isArray(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
        : inner,
    ) ?? ''
  );
}
