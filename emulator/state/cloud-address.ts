/** Addresses, names and files of a running local cloud. */
export type CloudAddress = {
  url: string;
  project: string;
  bucket: string;
  /** HOST:PORT of Pub/Sub over gRPC, the value of PUBSUB_EMULATOR_HOST. */
  pubsub_endpoint: string;
  /** HOST:PORT of Google's Firestore emulator; undefined where the functions use SQLite. */
  firestore_endpoint?: string | undefined;
  /** Collection of the documents of jobs; undefined for the default of the functions. */
  jobs_collection?: string | undefined;
  dir: string;
  /** Store of the functions. The cloud only deletes its expired documents. */
  store_file: string;
};
