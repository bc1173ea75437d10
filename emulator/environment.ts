/** Where everything of a running local cloud is. */
export type Where = {
  url: string;
  project: string;
  bucket: string;
  /** HOST:PORT of the gRPC door of Pub/Sub, as PUBSUB_EMULATOR_HOST wants it. */
  pubsub_endpoint: string;
  dir: string;
  /** The functions' own store; the cloud does not open it. */
  store_file: string;
};

/** The environment that makes the functions work on this cloud instead of on Google's. */
export function functionEnvironment(where: Where, token: string): Record<string, string> {
  const {url, project, bucket, pubsub_endpoint, store_file} = where;
  return {
    GOOGLE_CLOUD_PROJECT: project,
    STORAGE_EMULATOR_HOST: url,
    PUBSUB_EMULATOR_HOST: pubsub_endpoint,
    PUBSUB_PROJECT_ID: project,
    // Google's clients would look for a metadata server for a second.
    METADATA_SERVER_DETECTION: 'none',
    GLEANER_PROJECT: project,
    GLEANER_BUCKET: bucket,
    GLEANER_STORE: `sqlite:${store_file}`,
    GLEANER_WORKER_API: `${url}/functions/worker-api`,
    GLEANER_STORAGE_ENDPOINT: url,
    GLEANER_TPU_ENDPOINT: url,
    GLEANER_LOCAL_TOKEN: token,
  };
}

/** What a VM sees as its network. Its metadata server is its own and added at boot. */
export function vmNetwork({url}: Where): Record<string, string> {
  return {STORAGE_EMULATOR_HOST: url};
}
