/** The forms of `tokens` and `mask` of `run.json`. worker-startup/gleaner_worker/spec/selections.py reads `FORMS` from spec-keys.json. */

/** Regular expressions that mean the same in both languages. */
export const FORMS = {
  /** `[[start]:[stop][:step]]` of Python. */
  slice: '(-?\\d{1,6})?:(-?\\d{1,6})?(?::([1-9]\\d{0,5}))?',
  /** `random:1` to `random:1024`. */
  random: 'random:([1-9]\\d{0,2}|10[01]\\d|102[0-4])',
  /** Spans of a sample: of messages, of generated tokens, of a field of the record, or of matches of an expression. Without control characters, because terminals show them. */
  spans:
    '(?:(assistant|turns|generated)|(field):([^\\x00-\\x1f\\x7f-\\x9f]{1,256})|(regex):([^\\x00-\\x1f\\x7f-\\x9f]{1,1000}))',
};

export const SLICE = new RegExp(`^${FORMS.slice}$`);
export const MASK = new RegExp(`^${FORMS.spans}$`, 'u');
export const TOKENS = new RegExp(
  `^(?:all|last|mean|max|${FORMS.random}|${FORMS.slice}|(?:(?:last|mean|max):)?${FORMS.spans})$`,
  'u',
);
export const MASK_FORMS = '"assistant", "turns", "generated", "field:NAME" or "regex:PATTERN"';
export const TOKENS_FORMS = `"all", "last", "mean", "max", ${MASK_FORMS}, one of these five after "last:", "mean:" or "max:", "random:N" (1 to 1024), a slice such as "0:16" or "-8:", or a list of positions`;

const PARTS = new RegExp(`^(?:(last|mean|max)(?::|$))?(${FORMS.spans})?$`, 'u');

/** The parts of which `tokens` and `mask` are made. reduction: gives one row for each sample or span. */
export type Selection = {reduction?: string; spans?: string};

/** The parts of a value of `tokens` or `mask`; empty for positions, slices and random positions. */
export function selectionOf(value: unknown): Selection {
  const [, reduction, spans] = (typeof value === 'string' && PARTS.exec(value)) || [];
  return {...(reduction && {reduction}), ...(spans && {spans})};
}

/** True for values that combine several tokens into one row. */
export const isPool = ({reduction}: Selection) => reduction === 'mean' || reduction === 'max';

/** True for spans that only records with messages have. */
export const areOfMessages = ({spans}: Selection) => spans === 'assistant' || spans === 'turns';

/** The field of the record whose spans a value of `tokens` or `mask` asks for. */
export function spanField(value: unknown): string | undefined {
  const {spans} = selectionOf(value);
  return spans?.startsWith('field:') ? spans.slice('field:'.length) : undefined;
}

/** The expression whose matches a value of `tokens` or `mask` asks for. */
export function expressionOf({spans}: Selection): string | undefined {
  return spans?.startsWith('regex:') ? spans.slice('regex:'.length) : undefined;
}
