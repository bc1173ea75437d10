/** Parts that only some worlds have, by their seeds. Their draws are apart, so that the other worlds stay as they are. */
import {Chance} from '../../support/fakes/kernel.ts';

type Part = {every: number; remainder: number; draws: number};

const PARTS = {
  /** Pages of two, and operators who rebuild runs. */
  'tiny pages': {every: 8, remainder: 3, draws: 2_750_159},
  /** People who delete jobs that the control plane takes up, and cancel jobs that run. Reports of workers come again minutes later. */
  'hurried people': {every: 12, remainder: 7, draws: 1_299_709},
  /** Runs of different priorities. */
  priorities: {every: 12, remainder: 2, draws: 611_953},
  /** Extractors that hang for ever, and agents that speak on. */
  hung: {every: 12, remainder: 2, draws: 350_377},
  /** A machine that greets in the name of others before they do. */
  'early forger': {every: 12, remainder: 6, draws: 224_737},
  /** Jobs whose deadlines pass in their line, and a job that restarts its agent. */
  'short deadlines': {every: 12, remainder: 5, draws: 433_494_437},
  /** People who pause or resume a pool in the moment in which it requests a TPU. */
  'hasty pauses': {every: 12, remainder: 5, draws: 87_178_291},
  /** A zone in which the deployment lacks a permission for an hour or two. */
  'forbidden zone': {every: 12, remainder: 9, draws: 27_644_437},
  /** Runs with small budgets, and traffic between regions that costs as much as their TPUs. */
  'run budgets': {every: 24, remainder: 22, draws: 39_916_801},
  /** The database is lost, and a rebuild of every run follows at once. */
  'lost database': {every: 24, remainder: 15, draws: 15_485_867},
  /** Runs whose retention ends. */
  'old runs': {every: 12, remainder: 8, draws: 179_424_673},
  /** Two pools, and a small budget of the month for both. */
  'shared month': {every: 20, remainder: 17, draws: 472_882_027},
  /** Ticks whose plan is too old for their second pool. */
  'slow ticks': {every: 10, remainder: 2, draws: 86_028_121},
  /** Calls that take seconds, and people who change in that time what a function has read. */
  collisions: {every: 12, remainder: 3, draws: 112_272_535},
  /** Notifications go to a receiver, which refuses some in the storm, or is away. */
  receiver: {every: 16, remainder: 12, draws: 49_979_687},
  /** A second pool of slices of four hosts, which runs jobs alone. These worlds have jobs and a second pool. */
  slices: {every: 15, remainder: 7, draws: 32_452_843},
  /** Of the worlds with slices, those with four of them, jobs of three and of one, and a zone that has too few for hours. */
  gangs: {every: 30, remainder: 7, draws: 6_700_417},
} satisfies Record<string, Part>;

export type PartName = keyof typeof PARTS;

export const PART_NAMES = Object.keys(PARTS) as PartName[];

/** The draws of the part; undefined for a seed whose world lacks it. */
export function drawsOf(name: PartName, seed: number): Chance | undefined {
  const {every, remainder, draws} = PARTS[name];
  return seed % every === remainder ? new Chance(seed * draws + 1) : undefined;
}
