/** Addresses, names and files of a running local cloud. */
export type Where = {
  url: string;
  project: string;
  bucket: string;
  /** HOST:PORT of Pub/Sub over gRPC, the value of PUBSUB_EMULATOR_HOST. */
  pubsub_endpoint: string;
  dir: string;
  /** Store of the functions. The cloud never opens this file. */
  store_file: string;
};

/** Environment that points the functions at this cloud. */
export function functionEnvironment(where: Where, token: string): Record<string, string> {
  const {url, project, bucket, pubsub_endpoint, store_file} = where;
  return {
    GOOGLE_CLOUD_PROJECT: project,
    STORAGE_EMULATOR_HOST: url,
    PUBSUB_EMULATOR_HOST: pubsub_endpoint,
    PUBSUB_PROJECT_ID: project,
    // Without this variable Google's clients search for a metadata server for a second.
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

/** Environment that points a VM at this cloud. The boot of the VM adds the address of its metadata server. */
export function vmNetwork({url}: Where): Record<string, string> {
  return {STORAGE_EMULATOR_HOST: url};
}
