const SHOWN = 20;

/** Names in one line: `a, b, c and 12 more`. */
export function list(names: readonly string[]): string {
  const more = names.length > SHOWN ? ` and ${names.length - SHOWN} more` : '';
  return names.length === 0 ? 'none' : `${names.slice(0, SHOWN).join(', ')}${more}`;
}
