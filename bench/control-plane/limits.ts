/** Limits of the control plane at its main size. */
import {documentsOf} from './meter.ts';
import type {Size} from './scene.ts';
import type {Measured} from './scene-work.ts';

export const MAIN: Size = {workers: 10_000, streams: 100_000};
export const LONGEST_QUIET_TICK_S = 1.3;

type Limit = {scene: string; figure: string; most: number; of: (measured: Measured) => number};

const documents = ({usage}: Measured) => documentsOf(usage);

/** Documents are reads and writes as Firestore bills them. */
const LIMITS: readonly Limit[] = [
  {scene: '1,000 drops within 60 s', figure: 'documents of a drop, ticks included', most: 20, of: documents},
  {scene: 'shard', figure: 'documents', most: 4, of: documents},
  {scene: 'heartbeat', figure: 'documents', most: 2, of: documents},
  {scene: '100 workers ask at once', figure: 'documents of a request, mean', most: 12, of: documents},
  {
    scene: '100 workers ask at once',
    figure: 'documents of a request, worst',
    most: 30,
    of: ({worst}) => worst ?? Number.NaN,
  },
  {scene: 'configure', figure: 'documents without the tick', most: 15, of: documents},
  {scene: 'cancel', figure: 'documents without the tick', most: 15, of: documents},
  {scene: 'pause', figure: 'documents of a leased stream', most: 3, of: documents},
  {scene: 'tick, nothing changed', figure: 'reads', most: 16_476, of: ({usage}) => usage.reads},
  {
    scene: 'tick, nothing changed',
    figure: 'seconds',
    most: LONGEST_QUIET_TICK_S,
    of: ({seconds}) => seconds,
  },
  {scene: 'tick, idle', figure: 'reads', most: 30, of: ({usage}) => usage.reads},
];

export const LIMITED_SCENES: ReadonlySet<string> = new Set(LIMITS.map(({scene}) => scene));

export type Check = {scene: string; figure: string; value: number; most: number; is_over: boolean};

/** Checks the limits of the measured scenes. A scene that was not measured has no check. */
export function checkLimits(measured: readonly Measured[]): Check[] {
  return LIMITS.flatMap(({scene, figure, most, of}) => {
    const found = measured.find(({what}) => what === scene);
    if (!found) return [];
    return checked(scene, figure, of(found), most);
  });
}

export function checked(scene: string, figure: string, value: number, most: number): Check {
  return {scene, figure, value, most, is_over: !(value <= most)};
}

/** The limits as a text of `--help`. */
export function limitLines(): string[] {
  return LIMITS.map(({scene, figure, most}) => `${scene}: at most ${most.toLocaleString('en')} ${figure}`);
}
