/**
 * The part of `@google-cloud/compute` that Gleaner calls. `tsconfig.json` uses these types instead of the package's, which have 33 MB.
 * Every field of an answer may be missing, because Google leaves out fields.
 */
type CallOptions = {timeout?: number; maxRetries?: number; autoPaginate?: boolean};
type Place = {project: string; zone: string};

export type Instance = {
  name?: string | null;
  zone?: string | null;
  status?: string | null;
  creationTimestamp?: string | null;
  labels?: Record<string, string> | null;
  scheduling?: {provisioningModel?: string | null} | null;
};

export type ScopedList = {
  instances?: Instance[] | null;
  warning?: {code?: string | null; message?: string | null} | null;
};

export type AggregatedList = {
  items?: Record<string, ScopedList> | null;
  unreachables?: string[] | null;
  nextPageToken?: string | null;
};

/** Both gRPC and REST return the names of enums. */
export type Operation = {
  name?: string | null;
  status?: string | null;
  httpErrorStatusCode?: number | null;
  httpErrorMessage?: string | null;
  error?: {errors?: {code?: string | null; message?: string | null}[] | null} | null;
};

export type NewInstance = {
  name: string;
  machineType: string;
  labels: Record<string, string>;
  metadata: {items: {key: string; value: string}[]};
  disks: object[];
  networkInterfaces: object[];
  serviceAccounts: {email: string; scopes: string[]}[];
  scheduling: object;
  reservationAffinity?: object;
  params?: object;
};

type ClientOptions = {projectId: string};

export class InstancesClient {
  constructor(options: ClientOptions);
  initialize(): Promise<unknown>;
  /** The calls beneath the methods. For lists they return the whole answer, whereas the methods hide which zones did not answer. */
  innerApiCalls: {
    aggregatedList(
      request: {project: string; filter: string; maxResults: number; pageToken: string},
      options: CallOptions,
    ): Promise<[items: unknown, next: unknown, answer: AggregatedList]>;
  };
  get(request: Place & {instance: string}, options: CallOptions): Promise<[Instance]>;
  insert(
    request: Place & {instanceResource: NewInstance; requestId?: string},
    options: CallOptions,
  ): Promise<[{latestResponse: Operation}]>;
  delete(request: Place & {instance: string}, options: CallOptions): Promise<[{latestResponse: Operation}]>;
}

export class ZoneOperationsClient {
  constructor(options: ClientOptions);
  get(request: Place & {operation: string}, options: CallOptions): Promise<[Operation]>;
}
