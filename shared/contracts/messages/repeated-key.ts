/** Rejects repeated keys: JSON.parse would silently keep the last of two equal keys. */
import {Rejected} from '../errors.ts';

/** Matches are short, because a match of millions of characters would overflow the stack of the RegExp. */
const MARK = /\\.|["{}[\]]/g;
const COLON = /\s*:/y;

/** Throws `Rejected` if an object in this JSON text has a key twice. `what` is the name of the text. */
export function rejectRepeatedKey(json: string, what: string): void {
  const key = repeatedKey(json);
  if (key !== undefined)
    throw new Rejected(`${what} is not valid: it has the key ${JSON.stringify(key)} twice`);
}

function repeatedKey(json: string): string | undefined {
  const open: Set<string>[] = [];
  let start: number | undefined;
  for (const {0: mark, index} of json.matchAll(MARK)) {
    if (start !== undefined) {
      if (mark !== '"') continue;
      const text = json.slice(start, index + 1);
      start = undefined;
      COLON.lastIndex = index + 1;
      if (!COLON.test(json)) continue;
      const key: string = JSON.parse(text);
      if (open.at(-1)?.has(key)) return key;
      open.at(-1)?.add(key);
    } else if (mark === '"') start = index;
    else if (mark === '{' || mark === '[') open.push(new Set());
    else open.pop();
  }
  return undefined;
}
