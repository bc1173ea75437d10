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

/** Of each HTTP status, the `reason` in Google's JSON errors, and the gRPC status as Google's REST front end maps it. */
const MEANINGS: Record<number, [reason: string, word?: string]> = {
  400: ['invalid', 'INVALID_ARGUMENT'],
  401: ['authError', 'UNAUTHENTICATED'],
  403: ['forbidden', 'PERMISSION_DENIED'],
  404: ['notFound', 'NOT_FOUND'],
  405: ['methodNotAllowed'],
  409: ['conflict', 'ALREADY_EXISTS'],
  411: ['required'],
  412: ['conditionNotMet', 'FAILED_PRECONDITION'],
  413: ['uploadTooLarge'],
  416: ['requestedRangeNotSatisfiable', 'OUT_OF_RANGE'],
  429: ['rateLimitExceeded', 'RESOURCE_EXHAUSTED'],
  499: ['backendError', 'CANCELLED'],
  500: ['backendError', 'INTERNAL'],
  501: ['notImplemented', 'UNIMPLEMENTED'],
  503: ['backendError', 'UNAVAILABLE'],
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
    const [reason = 'backendError', word = 'UNKNOWN'] = MEANINGS[status] ?? [];
    this.reason = options.reason ?? reason;
    this.word = options.word ?? word;
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
