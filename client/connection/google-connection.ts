/** A deployment on Google Cloud. */
import {cloudText, type ProjectName} from './cloud-name.ts';
import type {Connection} from './connection.ts';
import {jobsIn} from './settings-file.ts';

type Deployment = Omit<ProjectName, 'kind'> & {origin: string; settings?: string | undefined};

/** Terraform names the bucket and the database. `settings`: the settings file of the deployment, if one is here. */
export function googleConnection({project, deployment, origin, settings}: Deployment): Connection {
  const {GLEANER_JOBS_COLLECTION, GLEANER_DEFAULT_MODEL} = process.env;
  const jobs = settings === undefined ? undefined : jobsIn(settings);
  return {
    is_google: true,
    name: cloudText({kind: 'project', project, deployment}),
    ...{storage_endpoint: undefined, pubsub_endpoint: undefined, token: undefined, folder: undefined},
    default_model: GLEANER_DEFAULT_MODEL,
    ...{project, deployment, bucket: `${project}-${deployment}`, store: `firestore:${deployment}`},
    jobs: GLEANER_JOBS_COLLECTION || (jobs ?? 'jobs'),
    ...{settings, origin},
    origins: {
      ...{bucket: 'Terraform', store: 'Terraform'},
      jobs: GLEANER_JOBS_COLLECTION ? 'GLEANER_JOBS_COLLECTION' : jobs ? (settings ?? '') : 'default',
      default_model: GLEANER_DEFAULT_MODEL ? 'GLEANER_DEFAULT_MODEL' : 'default',
    },
    stopped: async () => undefined,
    close: async () => {},
  };
}
