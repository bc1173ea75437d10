/**
 * JSON by its source text: each value keeps its digits, its escapes and the order of its keys. The rules are those of the worker,
 * which reads with Python's `json`: NaN and Infinity are values, and no object may have a key twice.
 */

import {LIMITS} from './limits.ts';

/** Objects and lists inside of each other; Python's `json` fails somewhat above. */
const MOST_DEPTH = LIMITS.json_depth;
/** Python reads no longer integer. */
const MOST_DIGITS = 4300;

/** Text that is no JSON, or no JSON of one meaning. `at` counts characters from 0. */
export class JsonError extends Error {
  readonly at: number;

  constructor(problem: string, at: number) {
    super(`${problem} at character ${at + 1}`);
    this.at = at;
  }
}

/** Checks the text of a value, and returns the text without the white space around it. Throws `JsonError`. */
export function jsonValue(text: string): string {
  return new Scanner(text).whole();
}

/** Members of the text of an object: the source text of each value by its key. Throws `JsonError`. */
export function membersOf(text: string): Map<string, string> {
  const members = new Map<string, string>();
  new Scanner(text).whole((key, value) => members.set(key, value));
  return members;
}

/** Splits the text of a JSON list into the texts of its elements. Throws `JsonError`. */
export function elementsOf(text: string): string[] {
  const elements: string[] = [];
  new Scanner(text).whole((_key, value) => elements.push(value));
  return elements;
}

/** A checked value without newlines. A string has none, so each stands between tokens. */
export function onOneLine(value: string): string {
  return value.replace(/[\r\n][ \t\r\n]*/g, ' ');
}

/** The first escape of a lone surrogate in a checked value, such as `\ud83d`: half of a character, which UTF-8 cannot hold. */
export function loneSurrogate(value: string): string | undefined {
  for (const [, lone] of value.matchAll(SURROGATES)) if (lone !== undefined) return lone;
  return undefined;
}

/** A pair, a lone surrogate, or another escape. */
const SURROGATES = /\\ud[89ab][\da-f]{2}\\ud[c-f][\da-f]{2}|(\\ud[89a-f][\da-f]{2})|\\./gi;

type JsonKind = 'object' | 'list' | 'string' | 'number' | 'boolean' | 'null';

/** Kind of a checked value. NaN and Infinity are numbers. */
export function jsonKind(value: string): JsonKind {
  const kinds: Record<string, JsonKind> = {
    '{': 'object',
    '[': 'list',
    '"': 'string',
    t: 'boolean',
    f: 'boolean',
    n: 'null',
  };
  return kinds[value[0] ?? ''] ?? 'number';
}

type Visit = (key: string, value: string) => void;

const [QUOTE, BACKSLASH, COMMA, COLON] = [34, 92, 44, 58];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125];

class Scanner {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** `visit` gets the members or elements of the outermost value. */
  whole(visit?: Visit): string {
    this.#skipSpace();
    const start = this.#at;
    this.#value(visit);
    const end = this.#at;
    this.#skipSpace();
    if (this.#at < this.#text.length) throw this.#problem('text follows the end of the value');
    return this.#text.slice(start, end);
  }

  #value(visit?: Visit): void {
    const code = this.#text.charCodeAt(this.#at);
    if (code === QUOTE) this.#string();
    else if (code === OPEN_OBJECT) this.#nested(CLOSE_OBJECT, visit);
    else if (code === OPEN_LIST) this.#nested(CLOSE_LIST, visit);
    else if (code === 45 || isDigit(code)) this.#number();
    else this.#word();
  }

  #nested(close: number, visit: Visit | undefined): void {
    if (++this.#depth > MOST_DEPTH)
      throw this.#problem(`more than ${MOST_DEPTH} objects and lists lie inside of each other`);
    const keys = close === CLOSE_OBJECT ? new Keys() : undefined;
    this.#at++;
    this.#skipSpace();
    if (this.#text.charCodeAt(this.#at) === close) this.#at++;
    else
      for (;;) {
        const key = keys ? this.#key(keys) : '';
        const start = this.#at;
        this.#value();
        visit?.(key, this.#text.slice(start, this.#at));
        this.#skipSpace();
        const code = this.#text.charCodeAt(this.#at);
        if (code !== COMMA && code !== close)
          throw this.#problem(`a comma or ${String.fromCharCode(close)} is missing`);
        this.#at++;
        if (code === close) break;
        this.#skipSpace();
      }
    this.#depth--;
  }

  #key(keys: Keys): string {
    const start = this.#at;
    if (this.#text.charCodeAt(start) !== QUOTE) throw this.#problem('a key in double quotes is missing');
    const isPlain = this.#string();
    const key = isPlain
      ? this.#text.slice(start + 1, this.#at - 1)
      : JSON.parse(this.#text.slice(start, this.#at));
    // The text does not show which of the two values is right.
    if (!keys.add(key))
      throw new JsonError(`the key "${key.slice(0, 60)}" is there twice, the second time`, start);
    this.#skipSpace();
    if (this.#text.charCodeAt(this.#at) !== COLON) throw this.#problem('a colon is missing');
    this.#at++;
    this.#skipSpace();
    return key;
  }

  /** True for a string without escapes. */
  #string(): boolean {
    const text = this.#text;
    let isPlain = true;
    for (let at = this.#at + 1; ; at++) {
      const code = text.charCodeAt(at);
      if (code === QUOTE) {
        this.#at = at + 1;
        return isPlain;
      }
      if (code === BACKSLASH) {
        isPlain = false;
        ESCAPE.lastIndex = at;
        if (!ESCAPE.test(text)) throw new JsonError('an unknown escape is', at);
        at = ESCAPE.lastIndex - 1;
      } else if (code < 32)
        throw new JsonError(`a control character (code ${code}) without its escape is`, at);
      else if (Number.isNaN(code)) throw new JsonError('the string does not end that begins', this.#at);
    }
  }

  #number(): void {
    const text = this.#text;
    let at = this.#at;
    if (text.charCodeAt(at) === 45) at++;
    const first = at;
    while (isDigit(text.charCodeAt(at))) at++;
    if (text.charCodeAt(first) === 48 && at > first + 1) throw this.#problem('a number begins with 0');
    const digits = at - first;
    const whole = at;
    if (text.charCodeAt(at) === 46) {
      at++;
      while (isDigit(text.charCodeAt(at))) at++;
      if (at === whole + 1) throw this.#problem('a number ends with its point');
    }
    const code = text.charCodeAt(at);
    if (digits > 0 && (code === 101 || code === 69)) {
      at++;
      if (text.charCodeAt(at) === 43 || text.charCodeAt(at) === 45) at++;
      const exponent = at;
      while (isDigit(text.charCodeAt(at))) at++;
      if (at === exponent) throw this.#problem('a number lacks its exponent');
    }
    if (digits === 0) this.#word();
    else {
      if (at === whole && digits > MOST_DIGITS)
        throw this.#problem(`an integer has more than ${MOST_DIGITS} digits`);
      this.#at = at;
    }
  }

  #word(): void {
    const word = WORDS.find(each => this.#text.startsWith(each, this.#at));
    if (word === undefined)
      throw this.#problem(this.#at >= this.#text.length ? 'the text is cut off' : 'no value begins');
    this.#at += word.length;
  }

  #skipSpace(): void {
    for (let at = this.#at; ; at++) {
      const code = this.#text.charCodeAt(at);
      if (code === 32 || code === 10 || code === 13 || code === 9) continue;
      this.#at = at;
      return;
    }
  }

  #problem(problem: string): JsonError {
    return new JsonError(problem, this.#at);
  }
}

const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const WORDS = ['true', 'false', 'null', 'NaN', 'Infinity', '-Infinity'];

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}

/** Keys of one object. Most objects have few. */
class Keys {
  #few: string[] = [];
  #many: Set<string> | undefined;

  /** False for a key that is there. */
  add(key: string): boolean {
    if (this.#many) return this.#many.size < this.#many.add(key).size;
    if (this.#few.includes(key)) return false;
    this.#few.push(key);
    if (this.#few.length > 16) this.#many = new Set(this.#few);
    return true;
  }
}
