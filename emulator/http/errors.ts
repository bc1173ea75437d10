import type {JsonObject} from './json.ts';

/** Error of the local cloud itself. The message names the remedy. */
export class LocalCloudError extends Error {
  override name = 'LocalCloudError';
  readonly code:
    | 'port-in-use'
    | 'dir-foreign'
    | 'dir-in-use'
    | 'dir-unusable'
    | 'bad-triggers'
    | 'bad-fault'
    | 'emulator-missing'
    | 'emulator-failed'
    | 'emulator-ended';
  constructor(code: LocalCloudError['code'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** gRPC status of each HTTP status, as Google's REST front end maps them. */
const grpcStatuses: Record<number, string> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  409: 'ALREADY_EXISTS',
  412: 'FAILED_PRECONDITION',
  416: 'OUT_OF_RANGE',
  429: 'RESOURCE_EXHAUSTED',
  499: 'CANCELLED',
  500: 'INTERNAL',
  501: 'UNIMPLEMENTED',
  503: 'UNAVAILABLE',
};

/** `reason` of each HTTP status in Google's JSON errors. */
const reasons: Record<number, string> = {
  400: 'invalid',
  401: 'authError',
  403: 'forbidden',
  404: 'notFound',
  405: 'methodNotAllowed',
  409: 'conflict',
  411: 'required',
  412: 'conditionNotMet',
  413: 'uploadTooLarge',
  416: 'requestedRangeNotSatisfiable',
  429: 'rateLimitExceeded',
  500: 'backendError',
  501: 'notImplemented',
  503: 'backendError',
};

/** Error answer in the format that Google's clients read. */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly status: number;
  readonly reason: string;
  /** Name of the gRPC status. */
  readonly word: string;
  readonly headers: Record<string, string>;
  constructor(
    status: number,
    message: string,
    options: {reason?: string; word?: string; headers?: Record<string, string>; cause?: unknown} = {},
  ) {
    super(message, {cause: options.cause});
    this.status = status;
    this.reason = options.reason ?? reasons[status] ?? 'backendError';
    this.word = options.word ?? grpcStatuses[status] ?? 'UNKNOWN';
    this.headers = options.headers ?? {};
  }

  body(): JsonObject {
    return {
      error: {
        code: this.status,
        message: this.message,
        status: this.word,
        errors: [{message: this.message, domain: 'global', reason: this.reason}],
      },
    };
  }
}
