import {join} from 'node:path';
import {DEFAULT_DEPLOYMENT, nameIn} from '../../shared/domain/deployment.ts';
import type {Triggers} from './triggers.ts';

/** A deployment of Gleaner on a local cloud. */
export type Deployment = {
  /** Value of GLEANER_DEPLOYMENT, and the prefix of names. */
  name: string;
  bucket: string;
  /** Store of the functions, unless they use Google's Firestore emulator. The cloud never opens this file. */
  store_file: string;
};

/** Push subscription of a function. */
export type Subscription = {
  name: string;
  topic: string;
  deployment: string;
  function: string;
  /** Limit of one attempt: Cloud Run ends the request before the acknowledgement deadline of 600 s. */
  timeout_s: number;
  /** Age after which Pub/Sub drops a message; undefined for a subscription with dead letters. */
  retention_s: number | undefined;
};

/** Settings of every subscription. Google Cloud waits 10 s to 600 s between two attempts; see `terraform/`. */
export const RETRY = {max_attempts: 20, min_backoff_ms: 200, max_backoff_ms: 10_000};
export const ACK_DEADLINE_S = 600;

/** Messages of the tick have no dead letters, because the next one follows within a minute. */
const TICK = {topic: 'tick', retention_s: 600};

type Named = Pick<Deployment, 'name' | 'bucket'>;

/** Deployments of a cloud in `dir`. Commands that name no deployment use the first one. */
export function deploymentsIn(
  dir: string,
  {deployments = [], bucket = 'gleaner-local'}: {deployments?: Named[]; bucket?: string},
): [Deployment, ...Deployment[]] {
  const withStore = (each: Named): Deployment => {
    const file = each.name === DEFAULT_DEPLOYMENT ? 'state.db' : `state-${each.name}.db`;
    return {...each, store_file: join(dir, file)};
  };
  const [first = {name: DEFAULT_DEPLOYMENT, bucket}, ...others] = deployments;
  return [withStore(first), ...others.map(withStore)];
}

export function subscriptionsOf({functions}: Triggers, deployment: string): Subscription[] {
  return functions.flatMap(({name, trigger, timeout_s}) =>
    trigger.kind !== 'topic'
      ? []
      : {
          ...{name: `${deployment}-${name}`, topic: nameIn(deployment, trigger.topic)},
          ...{deployment, function: name, timeout_s},
          retention_s: trigger.topic === TICK.topic ? TICK.retention_s : undefined,
        },
  );
}

export function topicsOf({functions, notifications}: Triggers, deployment: string): string[] {
  const topics = functions.flatMap(({trigger: on}) => (on.kind === 'topic' ? [on.topic] : []));
  const notified = notifications.map(({topic}) => topic);
  return [...new Set([...topics, ...notified])].map(topic => nameIn(deployment, topic));
}
