/** Parts that only some worlds have. Each has draws of its own, so it changes nothing else in its world. */
import {crc32} from 'node:zlib';
import {Chance} from '../../world/clock.ts';

/** `every`: one of so many worlds has the part. A part needs the parts in `needs`, and its world then has these too. */
type Part = {every: number; needs?: string[]};

const PARTS = {
  /** 21 slots in three zones, about fifty streams, and lists of more than one page. */
  wide: {every: 24},
  /** People submit jobs, and cancel, retry, delete and clear them. */
  jobs: {every: 3},
  /** Commands on hosts, new sources, and pools that operators pause, shrink and resume. */
  orders: {every: 4},
  'second pool': {every: 5},
  /** Operators keep TPUs without work. */
  keeping: {every: 4},
  /** Documents with a field that no release of the world understands. */
  'left alone': {every: 6},
  /** The own pool has instances of Compute Engine. A second pool has nodes of Cloud TPU. */
  instances: {every: 9},
  /** A run whose model lacks its layer, until the calm. */
  'broken model': {every: 11},
  /** A run whose hub does not answer, until the calm. */
  'silent hub': {every: 11},
  /** The bucket is in another region than every zone. */
  'far bucket': {every: 6},
  /** The price of TPUs triples. */
  'dearer TPUs': {every: 5},
  /** No node boots before the calm. */
  'bad image': {every: 16},
  /** The next release is rolled back. */
  'roll-back': {every: 10},
  /** Operators who send many messages, and change their minds soon after. */
  'busy operators': {every: 12},
  /** A budget of the pool that is spent after some minutes. */
  'small budget': {every: 12},
  /** Two runs of one line each, which is often invalid. */
  'single lines': {every: 24},
  /** Three times as many jobs. */
  'many jobs': {every: 12, needs: ['jobs']},
  /** Pages of two, and operators who rebuild runs. */
  'tiny pages': {every: 8},
  /** People who delete jobs that the control plane takes up, and cancel jobs that run. Reports of workers come again minutes later. */
  'hurried people': {every: 12, needs: ['jobs']},
  /** Runs of different priorities. */
  priorities: {every: 12},
  /** Extractors that hang for ever, and agents that speak on. */
  hung: {every: 12},
  /** A machine that greets in the name of others before they do. */
  'early forger': {every: 12},
  /** Jobs whose deadlines pass in their line, and a job that restarts its agent. */
  'short deadlines': {every: 12},
  /** People who pause or resume a pool in the moment in which it requests a TPU. */
  'hasty pauses': {every: 12},
  /** A zone in which the deployment lacks a permission for an hour or two. */
  'forbidden zone': {every: 12},
  /** Runs with small budgets, and traffic between regions that costs as much as their TPUs. */
  'run budgets': {every: 24, needs: ['far bucket']},
  /** The database is lost, and a rebuild of every run follows at once. */
  'lost database': {every: 24},
  /** Runs whose retention ends. */
  'old runs': {every: 12},
  /** Two pools, and a small budget of the month for both. */
  'shared month': {every: 20, needs: ['second pool']},
  /** Ticks whose plan is too old for their second pool. */
  'slow ticks': {every: 10, needs: ['second pool']},
  /** Calls that take seconds, and people who change in that time what a function has read. */
  collisions: {every: 12},
  /** Notifications go to a receiver, which refuses some in the storm, or is away. */
  receiver: {every: 16},
  /** The second pool has slices of four hosts, which runs jobs alone. */
  slices: {every: 15, needs: ['jobs', 'second pool']},
  /** Of the worlds with slices, those with four of them, jobs of three and of one, and a zone that has too few for hours. */
  gangs: {every: 30, needs: ['slices']},
} satisfies Record<string, Part>;

export type PartName = keyof typeof PARTS;

export const PART_NAMES = Object.keys(PARTS) as PartName[];

/** The parts of a world that is drawn from its seed. */
export function drawParts(seed: number): PartName[] {
  return PART_NAMES.filter(name => drawsOf(name, seed).happens(1 / PARTS[name].every));
}

export function withNeeds(names: readonly PartName[]): PartName[] {
  return names.flatMap(name => [name, ...withNeeds((PARTS[name] as {needs?: PartName[]}).needs ?? [])]);
}

/** The draws of a part of the world. */
export function drawsOf(name: string, seed: number): Chance {
  return new Chance(crc32(`${name} ${seed}`));
}
