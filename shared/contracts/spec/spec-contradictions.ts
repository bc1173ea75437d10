/** Contradictions between keys of `run.json`, or between entries of one key. */

import {expressionProblem} from './expression.ts';
import {areOfMessages, expressionOf, isPool, SLICE, selectionOf} from './selections.ts';
import {NOT_REDUCED, NUMBERS_OF_THINGS, readSite, SITES, siteProblem, withOwnNames} from './site-names.ts';
import {MOST_REDUCTIONS, type SpecValues} from './spec-forms.ts';

/** Key of the generated text among the kept fields. */
const ANSWER = 'generated';

type Path = (string | number)[];
type Issue = [path: Path, message: string];
/** Most tokens of a sample, and the key that sets this limit. */
type Limit = {length: number; key: string};

export function* contradictions(spec: SpecValues): Generator<Issue> {
  const {format, dtype, sites = [], layers, tokens, keep = [], record = {}} = spec;
  const {affinity, stream_offset} = spec;
  const {context_size, max_seq_length = 2048} = spec;
  const limit = context_size
    ? {length: context_size, key: 'context_size'}
    : {length: max_seq_length, key: 'max_seq_length'};
  if (format === 'pkl.gz' && (dtype === 'bf16' || dtype === 'int8'))
    yield [['dtype'], 'expected fp32 or fp16, which pkl.gz can hold'];
  if (format === 'pkl.gz' && sites.length > 1)
    yield [['sites'], 'expected one site, as pkl.gz holds no more: ask for safetensors'];
  const problem = siteProblem(spec);
  if (problem) yield [['sites'], problem];
  const own = sites.find(isAmong(NUMBERS_OF_THINGS));
  if (own && (format === 'pkl.gz' || isPool(selectionOf(tokens))))
    yield [
      ['sites'],
      `expected no ${own} beside pkl.gz and pools of tokens (mean, max): its values are numbers of things`,
    ];
  yield* ofLayers(['layers'], layers);
  for (const [key, values] of Object.entries({tokens, keep}))
    if (Array.isArray(values)) yield* repetitions([key], values);
  if (Array.isArray(tokens)) yield* beyond(tokens, limit);
  if (typeof tokens === 'string' && isEmptySlice(tokens, limit.length))
    yield [
      ['tokens'],
      `expected a slice that holds tokens of a sample of at most ${limit.length} (${limit.key})`,
    ];
  yield* ofReductions(spec);
  yield* ofSpans(spec);
  yield* ofGeneration(spec, limit);
  yield* ofLongDocuments(spec, limit.length);
  if ((stream_offset ?? 0) > 0 && affinity !== 'fixed')
    yield [['stream_offset'], 'expected affinity "fixed" beside it: any TPU may have any stream otherwise'];
  const {field, template, template_kwargs = {}, encoder, predictions_per_task = 1} = record;
  const of_record = {
    'field or template, not both: a template names its fields itself': field && template,
    'template or template_kwargs, not both: the variables are for a chat template':
      template && Object.keys(template_kwargs).length > 0,
    'add_generation_prompt or continue_final_message, not both: one begins an answer, the other continues a message':
      record.add_generation_prompt && record.continue_final_message,
    'a template, or encoder and predictions_per_task: those are of ARC tasks alone':
      template && (encoder || predictions_per_task > 1),
  };
  for (const [expected, isBroken] of Object.entries(of_record))
    if (isBroken) yield [['record'], `expected ${expected}`];
}

function* repetitions(path: Path, values: readonly (string | number)[]): Generator<Issue> {
  const again = values.findIndex((value, index) => values.indexOf(value) < index);
  if (again >= 0) yield [[...path, again], 'expected one that was not named before'];
}

type Layers = string | number[] | null | undefined;
const rangeOf = (layers: Layers) => (typeof layers === 'string' ? layers.split('-').map(Number) : []);

function* ofLayers(path: Path, layers: Layers): Generator<Issue> {
  if (Array.isArray(layers)) yield* repetitions(path, layers);
  const [first = 0, last = 0] = rangeOf(layers);
  if (first > last) yield [path, `expected a range from low to high, "${last}-${first}"`];
}

const isAmong = (sites: readonly string[]) => (name: string) => sites.includes(readSite(name)?.site ?? '');

/** Contradictions of reductions: with other keys, and of their entries. */
function* ofReductions(spec: SpecValues): Generator<Issue> {
  const {features = [], project = [], moments, sites, format, tokens} = spec;
  const all = {features: features[0], project: project[0], moments};
  const asked = Object.entries(all).flatMap(([key, value]) => (value ? [key] : []));
  if (sites?.length === 0 && asked.length === 0)
    yield [['sites'], 'expected a site, or features, project or moments beside it'];
  for (const key of asked) {
    if (format === 'pkl.gz') yield [[key], 'expected safetensors beside it: pkl.gz has no place for it'];
    if (key !== 'project' && isPool(selectionOf(tokens)))
      yield [[key], 'expected no pool of tokens (mean, max) beside it: it needs the vector of each token'];
  }
  if (features.length + project.length > MOST_REDUCTIONS)
    yield [['project'], `expected at most ${MOST_REDUCTIONS} entries, those of features included`];
  const taken = new Set<string>([...SITES, 'moments']);
  for (const [at, {name, path: file, site, layers}] of [...features, ...project].entries()) {
    const isFeature = at < features.length;
    const path = isFeature ? ['features', at] : ['project', at - features.length];
    const names = isFeature ? ['', '_ids', '_active', '_error'].map(end => name + end) : [name];
    const again = names.find(each => taken.has(each));
    if (again) yield [[...path, 'name'], `expected another name: ${again} is a site or an earlier output`];
    for (const each of names) taken.add(each);
    yield* ofReduction(path, 'site', site ? [site] : [], layers);
    const chosen = layers ?? withOwnNames(spec).layers ?? 'all';
    const [first, last] = Array.isArray(chosen) ? [1, chosen.length] : rangeOf(chosen);
    if (isFeature && !file?.includes('{layer}') && first !== last)
      yield [[...path, 'path'], 'expected {layer} in it, or `layers` of one layer beside it'];
  }
  yield* ofReduction(['moments'], 'sites', moments?.sites ?? [], moments?.layers);
}

/** Contradictions of the sites and the layers that a reduction reads. */
function* ofReduction(path: Path, key: string, sites: string[], layers: Layers): Generator<Issue> {
  const other = sites.find(isAmong(NOT_REDUCED));
  if (other)
    yield [[...path, key], `expected another site: the values of ${other} are no vectors of the model`];
  const problem = siteProblem({sites, layers: []});
  if (problem) yield [[...path, key], problem];
  yield* ofLayers([...path, 'layers'], layers);
}

function* beyond(positions: readonly number[], {length, key}: Limit): Generator<Issue> {
  const index = positions.findIndex(position => position >= length || position < -length);
  if (index >= 0)
    yield [
      ['tokens', index],
      `expected a position from -${length} to ${length - 1}, as samples have at most ${length} tokens (${key})`,
    ];
}

/** Contradictions of the spans that `tokens` and `mask` ask for. */
function* ofSpans({tokens, mask, format, over_long = 'reject', record = {}}: SpecValues): Generator<Issue> {
  for (const [key, value] of Object.entries({tokens, mask})) {
    const selection = selectionOf(value);
    const expression = expressionOf(selection);
    const problem = expression === undefined ? undefined : expressionProblem(expression);
    if (problem) yield [[key], `expected an expression in the syntax of RE2: ${problem}`];
    if (areOfMessages(selection) && (record.template || record.encoder))
      yield [
        [key],
        `expected another value: "${selection.spans}" needs records with messages, which a chat template writes`,
      ];
  }
  const {reduction, spans} = selectionOf(tokens);
  const hasRowsOfSpans = reduction !== undefined && spans !== undefined;
  if (format === 'pkl.gz' && (mask || hasRowsOfSpans))
    yield [
      [mask ? 'mask' : 'tokens'],
      'expected safetensors beside it: pkl.gz has no place for a mask and for rows of spans',
    ];
  if (hasRowsOfSpans && (over_long === 'chunk' || over_long === 'pack'))
    yield [['tokens'], `expected reject or truncate beside it: over_long "${over_long}" cuts spans`];
}

/** Contradictions of the tokens that a run generates. */
function* ofGeneration(spec: SpecValues, {length, key}: Limit): Generator<Issue> {
  const {generate, tokens, mask, over_long = 'reject', keep = []} = spec;
  const asks = Object.entries({tokens, mask}).find(([, value]) => selectionOf(value).spans === 'generated');
  if (!generate) {
    if (asks) yield [[asks[0]], 'expected generate beside it: no other run has generated tokens'];
    return;
  }
  if (generate.max_new_tokens >= length)
    yield [
      ['generate', 'max_new_tokens'],
      `expected at most ${length - 1}, as a sample has at most ${length} tokens with its prompt (${key})`,
    ];
  if (over_long === 'chunk' || over_long === 'pack')
    yield [['over_long'], 'expected reject or truncate beside generate, which continues whole prompts'];
  const index = keep.indexOf(ANSWER);
  if (index >= 0) yield [['keep', index], `expected another name: generate stores its text as ${ANSWER}`];
}

/** Contradictions between `over_long` and the keys that belong to it. */
function* ofLongDocuments(spec: SpecValues, length: number): Generator<Issue> {
  const {over_long = 'reject', context_size, overlap = 0, max_seq_length} = spec;
  const {format, keep = [], record = {}} = spec;
  const isCut = over_long === 'chunk' || over_long === 'pack';
  if (!isCut && context_size) yield [['context_size'], 'expected over_long "chunk" or "pack" beside it'];
  if (over_long !== 'chunk' && overlap > 0) yield [['overlap'], 'expected over_long "chunk" beside it'];
  if (isCut && !context_size && length < 2)
    yield [['max_seq_length'], `expected at least 2 beside over_long "${over_long}": one token may be BOS`];
  const most_overlap = Math.max(0, length - 2);
  if (over_long === 'chunk' && overlap > most_overlap)
    yield [
      ['overlap'],
      `expected at most ${most_overlap}: a chunk has ${length} tokens, one may be BOS, and one is new`,
    ];
  if (context_size && max_seq_length && context_size > max_seq_length)
    yield [['context_size'], `expected at most max_seq_length, which is ${max_seq_length}`];
  if (!isCut) return;
  if (format === 'pkl.gz')
    yield [
      ['over_long'],
      'expected reject or truncate: pkl.gz has no place for line and chunk, safetensors has',
    ];
  if ((record.predictions_per_task ?? 1) > 1)
    yield [['over_long'], 'expected reject or truncate beside predictions_per_task'];
  if (over_long === 'pack' && keep.length > 0)
    yield [['keep'], 'expected no names beside over_long "pack": a packed window holds several records'];
}

/** True if a Python slice is empty for every sample of up to `length` tokens. */
function isEmptySlice(tokens: string, length: number): boolean {
  const match = SLICE.exec(tokens);
  if (!match) return false;
  const start = Number(match[1] ?? 0);
  if (start >= length) return true;
  if (match[2] === undefined) return false;
  const stop = Number(match[2]);
  return stop === 0 || stop <= -length || (start < 0 === stop < 0 && start >= stop);
}
