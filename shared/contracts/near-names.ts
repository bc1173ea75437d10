import {distance} from 'fastest-levenshtein';

const MOST_NAMES = 3;

/** Names that differ from the given one by a third of its characters at most, the nearest first. */
export function nearNames(
  given: string,
  known: Iterable<string>,
  most = Math.ceil(given.length / 3),
): string[] {
  return [...new Set(known)]
    .map(name => ({name, edits: distance(given.toLowerCase(), name.toLowerCase())}))
    .filter(({edits}) => edits <= most)
    .sort((a, b) => a.edits - b.edits || a.name.localeCompare(b.name))
    .slice(0, MOST_NAMES)
    .map(({name}) => name);
}

/** `; did you mean "a" or "b"?`, or nothing. */
export function nearText(given: string, known: Iterable<string>): string {
  const near = nearNames(given, known);
  return near.length > 0 ? `; did you mean ${near.map(name => `"${name}"`).join(' or ')}?` : '';
}
