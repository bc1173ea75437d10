/** Delays and faults of Cloud TPU. */
import type {Chance, Clockwork} from './clock.ts';

/** The simulator draws them from its seed. */
export type TpuFaults = {
  readonly clockwork: Clockwork;
  readonly chance: Pick<Chance, 'happens' | 'between'>;
  strikes(kind: 'stale' | 'omission' | 'stuck' | 'suspension'): boolean;
  /** Counts what happens. */
  see(what: string): void;
};

/** Cloud TPU without faults, whose operations are due at once. */
export function calm(clockwork: Clockwork): TpuFaults {
  return {clockwork, chance: {happens: () => false, between: () => 0}, strikes: () => false, see() {}};
}
