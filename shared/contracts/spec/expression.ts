/** Expressions in the syntax of RE2, by which the worker chooses tokens. */
import {RE2JS} from 're2js';

/** Most instructions of a compiled expression. The worker's RE2 has memory for more: _PATTERN_BYTES of records/tokens/spans.py. */
const MOST_INSTRUCTIONS = 40_000;

export function expressionProblem(pattern: string): string | undefined {
  try {
    const {re2Input} = RE2JS.compile(pattern);
    const name = unknownClass(pattern);
    if (name !== undefined)
      return `there is no class \\p{${name}}; take a script such as Greek, or a category such as Lu`;
    if (isLargerThan(MOST_INSTRUCTIONS, re2Input.prog.inst))
      return `it has more than ${MOST_INSTRUCTIONS} instructions; take smaller classes of characters or fewer repetitions`;
    return undefined;
  } catch (error) {
    return (error as Error).message.replace(/^error parsing regexp: /, '');
  }
}

/** Categories, and scripts of Unicode 16 and 17, that RE2JS knows and the worker's RE2 lacks. */
const NOT_OF_RE2 = new Set(
  'Cn LC Lc Unknown Beria_Erfe Garay Gurung_Khema Kirat_Rai Ol_Onal Sidetic Sunuwar Tai_Yo Todhri Tolong_Siki Tulu_Tigalari'.split(
    ' ',
  ),
);

/** The first character class that RE2JS knows and the worker's RE2 lacks. RE2JS also has properties such as Emoji. */
function unknownClass(pattern: string): string | undefined {
  const classes = Array.from(pattern.matchAll(/\\(?:[pP]\{\^?(\w+)\}|.)/gsu), ([, name]) => name);
  return classes.find(
    name =>
      name !== undefined && (NOT_OF_RE2.has(name) || !(name.length <= 2 || name === 'Any' || isScript(name))),
  );
}

function isScript(name: string): boolean {
  try {
    return new RegExp(`\\p{Script=${name}}`, 'u') !== undefined;
  } catch {
    return false;
  }
}

/** runes: the first and the last character of each range; or one character, with `arg` for its other cases. */
type Instruction = {runes: Int32Array; arg: number};

function isLargerThan(most: number, instructions: Instruction[]): boolean {
  let size = 0;
  for (const {runes, arg} of instructions) {
    if (runes.length === 1) size += ofRange(runes[0] ?? 0, runes[0] ?? 0) * (arg ? 4 : 1);
    else for (let at = 0; at < runes.length; at += 2) size += ofRange(runes[at] ?? 0, runes[at + 1] ?? 0);
    if (++size > most) return true;
  }
  return false;
}

/** Most instructions for a range of characters: RE2 matches UTF-8 bytes, and splits a range where its bytes depend on each other. */
function ofRange(first: number, last: number): number {
  for (const end of [0x7f, 0x7ff, 0xffff])
    if (first <= end && end < last) return ofRange(first, end) + ofRange(end + 1, last);
  for (const mask of [0x3f, 0xfff, 0x3ffff]) {
    if ((first & ~mask) === (last & ~mask)) break;
    if (first & mask) return ofRange(first, first | mask) + ofRange((first | mask) + 1, last);
    if (~last & mask) return ofRange(first, (last & ~mask) - 1) + ofRange(last & ~mask, last);
  }
  return last <= 0x7f ? 2 : last <= 0x7ff ? 3 : last <= 0xffff ? 4 : 5;
}
