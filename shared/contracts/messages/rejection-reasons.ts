/** Reasons for a rejected value in plain words, with the key, the expectation and the value. */
import type {z} from 'zod';

type Issue = z.core.$ZodIssue;

/** The reasons for a rejected `value`, one for each mistake. */
export function reasonsOf(error: z.ZodError, value: unknown): string[] {
  return onePerMistake(error.issues.flatMap(whatIsWrong)).map(issue => explain(issue, value));
}

/** If a schema allows several kinds of value, only the issues of the kind that was given. */
function whatIsWrong(issue: Issue): Issue[] {
  if (issue.code !== 'invalid_union') return [issue];
  const branch = issue.errors.find(branch =>
    branch.some(({code, path}) => code !== 'invalid_type' || path.length > 0),
  );
  return branch?.map(inner => ({...inner, path: [...issue.path, ...inner.path]})) ?? [issue];
}

/**
 * Keeps one issue for each mistake. A value of the wrong kind also breaks limits of the right kind.
 * If a number breaks two limits, the last one is the tightest. A value of another schema has only that issue.
 */
function onePerMistake(issues: Issue[]): Issue[] {
  const foreign = issues.filter(({path}) => path.length === 1 && path[0] === 'schema');
  if (foreign.length > 0) return foreign;
  const isLimit = ({code}: Issue) => code === 'too_big' || code === 'too_small';
  const isNearer = (other: Issue, issue: Issue, isLater: boolean) =>
    other.path.join() === issue.path.join() &&
    (other.code === 'invalid_type' || (isLater && other.code === issue.code));
  return issues.filter(
    (issue, index) =>
      !isLimit(issue) || !issues.some((other, place) => isNearer(other, issue, place > index)),
  );
}

/** A reason such as `action: expected …, but it is "dance"`. The value is quoted if it is a short word. */
function explain(issue: Issue, whole: unknown): string {
  const {path, message} = issue;
  const value = path.reduce<unknown>(
    (inner, key) => (inner as Record<PropertyKey, unknown> | null)?.[key],
    whole,
  );
  const words = ZODS_OWN.test(message) ? inWords(issue, value) : message;
  if (path.length === 0) return words;
  const key = path.join('.');
  if (key === 'schema' && value === undefined) return 'schema is missing: Gleaner did not write it';
  if (value === undefined) return `${key} is missing${words === message ? `: ${words}` : ''}`;
  const isWord = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
  const isTold = !isWord || issue.code === 'invalid_type';
  return `${key}: ${words}${isTold ? '' : `, but it is ${JSON.stringify(value).slice(0, 100)}`}`;
}

const ZODS_OWN = /^(Invalid|Too (big|small)|Unrecognized key)/;
const KINDS: Record<string, string> = {
  array: 'a list',
  object: 'an object',
  record: 'an object',
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  null: 'null',
};

function inWords(issue: Issue, found: unknown): string {
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${KINDS[issue.expected] ?? issue.expected}, got ${kindOf(found)}`;
    case 'invalid_value':
      return `expected ${listed(issue.values)}`;
    case 'invalid_union':
      return 'options' in issue
        ? `expected ${listed(issue.options as unknown[])}`
        : 'is of no kind that fits';
    case 'too_big':
      return `expected ${issue.inclusive ? 'at most' : 'less than'} ${quantity(issue.maximum, issue.origin)}`;
    case 'too_small':
      return `expected ${issue.inclusive ? 'at least' : 'more than'} ${quantity(issue.minimum, issue.origin)}`;
    case 'unrecognized_keys':
      return `there is no ${issue.keys.map(key => `"${key}"`).join(', no ')}`;
    case 'invalid_format':
      return `expected the form ${issue.pattern ?? issue.format}`;
    default:
      return issue.message;
  }
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'number' && !Number.isInteger(value)) return String(value);
  return KINDS[typeof value] ?? typeof value;
}

function listed(values: readonly unknown[]): string {
  const words = values.map(value => JSON.stringify(value));
  return words.length > 1 ? `one of ${words.join(', ')}` : String(words[0]);
}

const UNITS: Record<string, [one: string, more: string]> = {
  string: ['character', 'characters'],
  array: ['entry', 'entries'],
};

function quantity(limit: number | bigint, origin: string): string {
  const unit = UNITS[origin]?.[Number(limit) === 1 ? 0 : 1];
  return unit ? `${limit} ${unit}` : String(limit);
}
