import {openObjects} from '../../shared/google/objects.ts';
import type {Objects} from '../../shared/ports.ts';
import type {Connection} from '../cloud/connection.ts';

type Place = Pick<Connection, 'project' | 'deployment' | 'bucket' | 'storage_endpoint' | 'token'>;

/** Opens the bucket of the agents' logs. */
export function openLogs(place: Place, env: NodeJS.ProcessEnv = process.env): Objects {
  const {project, storage_endpoint: endpoint, token} = place;
  return openObjects({project, bucket: logsBucketOf(place, env), endpoint, token});
}

/** Bucket of the agents' logs. A local cloud has one bucket for all; terraform/buckets.tf names the bucket of a deployment. */
export function logsBucketOf(
  {project, deployment, bucket, storage_endpoint}: Omit<Place, 'token'>,
  env: NodeJS.ProcessEnv,
): string {
  if (storage_endpoint !== undefined) return bucket;
  return env.GLEANER_LOGS_BUCKET || `${project}-${deployment}-logs`;
}
