/** Events in the words of a story: created, preempted, recreated, resumed, completed. */
import type {Style} from '../text/format.ts';
import type {StyledLine} from '../text/output.ts';
import type {Line} from './timeline.ts';

type Verb = {verb: string; style?: Style | Style[]};

/** The first pattern that matches counts. */
const VERBS: [pattern: RegExp, verb: Verb][] = [
  [/^preempted /, {verb: 'PREEMPTED', style: ['bold', 'red']}],
  [/ is lost: /, {verb: 'lost', style: 'red'}],
  [/ is wanted: creating it, incarnation 1$/, {verb: 'created'}],
  [/ is wanted: creating it, incarnation /, {verb: 'recreated', style: 'green'}],
  [/ works on \S+ from sample 0$/, {verb: 'started'}],
  [/ works on \S+ from sample /, {verb: 'resumed', style: ['bold', 'green']}],
  [/^Shards? .* stored$/, {verb: 'stored', style: 'dim'}],
  [/^Stream \S+ is complete/, {verb: 'completed', style: 'green'}],
  [/^Run \S+ is completed/, {verb: 'completed', style: ['bold', 'green']}],
  [/ is gone$/, {verb: 'deleted', style: 'dim'}],
  [
    / failed|cannot be created|is not created|is paused: |was rejected|is ignored: /,
    {verb: 'failed', style: 'red'},
  ],
  [/is READY again/, {verb: 'back', style: 'green'}],
];

export function verbOf(text: string): Verb | undefined {
  return VERBS.find(([pattern]) => pattern.test(text))?.[1];
}

/** Red for a loss, green for a recovery and for the end of a stream or a run. */
export function styleOf(text: string): Style | Style[] | undefined {
  return verbOf(text)?.style;
}

const VERB_WIDTH = Math.max(...VERBS.map(([, {verb}]) => verb.length));

/** `16:39:20  Stream 007 is complete`. */
export function clockText({at, text}: Line): string {
  return `${at.slice(11, 19)}  ${text}`;
}

/** `16:39:20  PREEMPTED  tpu-us-central1-a-1: its VM is gone`; undefined for an event that is no part of the story. */
export function storyLine({at, text}: Line): StyledLine | undefined {
  const found = verbOf(text);
  if (!found) return undefined;
  const words = text.replace(/^preempted /, '');
  return {text: clockText({at, text: `${found.verb.padEnd(VERB_WIDTH)}  ${words}`}), style: found.style};
}
