/** Flags of the gcloud commands that the documents use, as their `--help` has them. */
export const GCLOUD: Readonly<Record<string, readonly string[]>> = {
  'auth login': [],
  'auth application-default login': [],
  'auth application-default set-quota-project': [],
  'config set': [],
  'services enable': ['--project'],
  'beta services identity create': ['--service', '--project'],
  'storage buckets create': [
    '--project',
    '--location',
    '--uniform-bucket-level-access',
    '--public-access-prevention',
  ],
  'storage cp': [],
  'storage ls': [],
  'storage cat': [],
  'pubsub topics publish': ['--message', '--project'],
  'compute tpus tpu-vm list': ['--zone', '--project'],
  'secrets create': ['--data-file', '--project'],
};
