/** Fields of a record that a run reads without `record` in its spec. */
import roles from '../../../worker-startup/gleaner_worker/records/chat/chat_roles.json' with {type: 'json'};
import {elementsOf, jsonKind, membersOf} from './json-text.ts';

/** In the order in which a run takes them. */
export const KNOWN_FIELDS = ['text', 'prompt', 'messages', 'tokens', 'conversations'];
export const TASK_FIELDS = ['train', 'test'];
export const CHATS = ['messages', 'conversations'];
export const BESIDE_MESSAGES = ['tools', 'chat_template_kwargs', 'continue_final_message'];
/** The field beside a chat of ShareGPT with its first message. */
export const SYSTEM = 'system';

/** Known fields of a record, in the order in which a run takes them. */
export function knownFieldsOf(names: {has(name: string): boolean}): string[] {
  const fields = KNOWN_FIELDS.filter(name => names.has(name));
  return TASK_FIELDS.every(name => names.has(name)) ? [...fields, TASK_FIELDS.join(' and ')] : fields;
}

/** True for an object that is one record: the field that a run takes has a value of its kind. */
export function isRecord(members: ReadonlyMap<string, string>): boolean {
  const field = KNOWN_FIELDS.find(name => members.has(name));
  if (field === undefined) return TASK_FIELDS.every(name => isListOf(members.get(name), isExample));
  const value = members.get(field) ?? '';
  if (field === 'messages') return isMessages(value);
  if (field === 'conversations') return isMessages(value) || isShareGpt(value);
  return field === 'tokens' ? isTokens(value) : jsonKind(value) === 'string';
}

/** True for a list of objects with role and content. A call of tools needs no content. */
export function isMessages(value: string): boolean {
  return isListOf(value, isMessage);
}

/** True for a list with an object that has `from` and no role. */
export function isShareGpt(value: string): boolean {
  return jsonKind(value) === 'list' && elementsOf(value).some(isTurn);
}

/** Test of the names in an element that is an object. */
const objectWith = (test: (names: ReadonlyMap<string, string>) => boolean) => (element: string) =>
  jsonKind(element) === 'object' && test(membersOf(element));

const isTurn = objectWith(names => names.has('from') && !names.has('role'));
const isExample = objectWith(names => names.has('input'));
const isMessage = objectWith(names => names.has('role') && (names.has('content') || names.has('tool_calls')));

/** Values beside messages that mean nothing: tables have an empty text where there are no tools. */
export const ABSENT = ['null', '""'];

/**
 * Why a list of messages is no chat in the layout of ShareGPT, as sharegpt.py of the worker says; undefined for one, and for other lists.
 * `system`: the value beside it.
 */
export function shareGptProblem(value: string, system = 'null'): string | undefined {
  if (!isShareGpt(value)) return undefined;
  for (const [number, turn] of elementsOf(value).entries()) {
    const where = `[${number}]`;
    const members = isTurn(turn) ? membersOf(turn) : new Map<string, string>();
    if (!members.has('from') || members.has('content'))
      return `${where} is not an object with from and value alone, as other turns of the chat are`;
    const from = members.get('from') ?? '';
    if (jsonKind(from) !== 'string' || !Object.hasOwn(roles, JSON.parse(from)))
      return `${where} has an unknown "from": ${from.slice(0, 60)} (known: ${Object.keys(roles).join(', ')})`;
    if (jsonKind(members.get('value') ?? 'null') !== 'string')
      return `${where} has no value that is a string`;
    if (number === 0 && from === '"system"' && jsonKind(system) === 'string' && system !== '""')
      return `${where} is a second system message beside system`;
  }
  const isText = jsonKind(system) === 'string' || system === 'null';
  return isText ? undefined : ' has a system beside it that is not a string';
}

/** True for a list of whole numbers. The value is checked JSON. */
export function isTokens(value: string): boolean {
  return jsonKind(value) === 'list' && /^\[[\d\s,-]+\]$/.test(value) && /\d/.test(value);
}

/** True for a list with elements, each of this kind. */
export function isListOf(value: string | undefined, isElement: (element: string) => boolean): boolean {
  if (value === undefined || jsonKind(value) !== 'list') return false;
  const elements = elementsOf(value);
  return elements.length > 0 && elements.every(isElement);
}
