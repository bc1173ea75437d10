/** `gleaner why`: the binding constraint of a run, a stream, a job or a TPU, with its evidence and the next step. */

import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Answers} from '../../client/json/index.ts';
import type {Kinds} from '../../client/logs/target.ts';
import {durationText} from '../../client/text/format.ts';
import {print} from '../../client/text/output.ts';
import {explain} from '../../client/views/why.ts';
import {utcText} from '../../shared/domain/time.ts';

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
  // `run my-run is paused` says both.
  const isSaid = answer.kind === state && answer.about?.endsWith(name);
  return [
    isSaid ? reason : `${name} is ${state}: ${reason}`,
    ...line('constraint', answer.kind),
    ...line('since', since_at && `${utcText(since_at)}, ${age(since_at)} ago`),
    ...line('next try', next_try_at && utcText(next_try_at)),
    ...line('behind', behind),
    ...line('next step', next_step),
  ];
}
