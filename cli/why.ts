/** `gleaner why`: the binding constraint of a run, a stream, a job or a TPU, with its evidence and the next step. */
import {utcText} from '../shared/domain/time.ts';
import {withCloud} from './cloud/cloud.ts';
import type {CloudOptions} from './cloud/connect.ts';
import type {Answers} from './json/index.ts';
import type {Kinds} from './logs/target.ts';
import {durationText} from './terminal/format.ts';
import {print} from './terminal/output.ts';
import {explain} from './views/why.ts';

/** Prints why a run, a stream, a job or a TPU waits. */
export async function why(name: string, options: CloudOptions & Kinds): Promise<void> {
  await withCloud(options, async cloud => {
    const answer = await explain(cloud, name, options);
    print<'why'>(options.json, answer, linesOf(answer, Date.now()));
  });
}

function linesOf(answer: Answers['why'], now: number): string[] {
  const {name, state, moves, reason, since_at, next_try_at, next_step, behind} = answer;
  if (reason === null) return [`${name} is ${state}: ${moves}`];
  const line = (title: string, value: string | null) =>
    value === null ? [] : [`  ${title.padEnd(10)}  ${value}`];
  const age = (at: string) => durationText(Math.abs(now - Date.parse(at)) / 1000);
  return [
    `${name} is ${state}: ${reason}`,
    ...line('constraint', answer.kind),
    ...line('since', since_at && `${utcText(since_at)}, ${age(since_at)} ago`),
    ...line('next try', next_try_at && utcText(next_try_at)),
    ...line('behind', behind),
    ...line('next step', next_step),
  ];
}
