import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {apply, outcomeOf, publish, sendTo} from '../cloud/send-message.ts';
import {requireConsent} from '../terminal/ask.ts';
import {print} from '../terminal/output.ts';

const MESSAGE = {action: 'clear'};

/** Deletes the documents of ended jobs after a question. A message deletes some of them, so it is sent until none is left. */
export async function clear(options: CloudOptions): Promise<void> {
  const consequence = 'The documents of all ended jobs are deleted. Their output stays in the bucket.';
  if (!options.dry_run) await requireConsent([consequence], options);
  await withCloud(options, async cloud => {
    if (options.dry_run) return sendTo(cloud, MESSAGE, options);
    await apply(cloud, MESSAGE);
    const again = async () => outcomeOf(cloud.store, await publish(cloud, 'control', MESSAGE));
    while ((await again()).outcome === 'applied');
    const done = 'the documents of all ended jobs are deleted';
    print<'jobs clear'>(options.json, {done}, [done]);
  });
}
