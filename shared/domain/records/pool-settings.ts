/** The fields of a pool that deployments and messages set. */
import {type Fields, flag, text, whole, word} from './field.ts';

const deployed = {kind: 'number', above: 0, most: 86_400} as const;

/** Settings of the deployment's own pool, each of which a message may override. */
export const poolPaces = {
  poll_s: {
    ...{kind: 'number', least: 1, most: 86_400, deployed, default: 60},
    means: 'Seconds until a TPU without work asks again, plus up to a quarter.',
    option: 'seconds until a worker without work asks again',
  },
  job_wait_s: {
    ...{kind: 'number', least: 0, most: 604_800, deployed, default: 120},
    means: 'Seconds that a job waits until a TPU gives its stream back after the shard in hand.',
    option: 'seconds that a job waits until a TPU gives its stream back',
  },
} as const satisfies Fields;

export const poolSizes = {
  workers_per_zone: {
    ...{...whole(0, 1000), deployed: whole(1, 1000), default: 1},
    means: 'Slots in each zone.',
    option: 'most TPUs in each zone',
  },
  provisioning: {
    ...{...word('node', 'queued-resource', 'auto', 'flex-start'), default: 'node'},
    means:
      '`node`: asks for nodes at once. `queued-resource`: in the queue. `auto`: in the queue while a zone is sold out. `flex-start`: instances that wait for up to two hours.',
    option: 'how nodes are asked for',
  },
  budget_usd: {
    ...{kind: 'number', above: 0, most: 10_000_000, default: null},
    means: 'Dollars that TPUs and network of the pool may ever cost. Null: no limit.',
    option: 'most dollars that the pool may ever cost',
  },
} as const satisfies Fields;

/** Settings of a pool that messages may change at any time. `zones` is one too, but its form differs in each place. */
export const poolSettings = {...poolSizes, ...poolPaces};

/** What a pool keeps from its creation on. For its own pool only the deployment sets it. */
export const poolTerms = {
  provider: {
    ...word('tpu-api', 'compute-engine'),
    means: 'Where the TPUs come from: `tpu-api`, or `compute-engine` for instances.',
    option: 'the Cloud TPU API, or instances of Compute Engine',
  },
  accelerator: {
    ...{...text(100), option: 'type of each TPU, such as v5litepod-1'},
    means: 'Type of each TPU, such as `v5litepod-8`.',
  },
  runtime_version: {...text(250), means: 'Software version of the TPU VMs, or image of the instances.'},
  disk_gb: {
    ...whole(50, 10_000),
    means: 'Size of the boot disk of each instance, in GB. Null with `tpu-api`.',
    option: 'boot disk of each instance of Compute Engine (default: 100)',
  },
  spot: {...flag, means: 'True: the TPUs are Spot VMs, which Google may preempt.'},
} as const satisfies Fields;
