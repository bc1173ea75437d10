import {ApiError, LocalCloudError} from './http/errors.ts';
import type {Handler, Route} from './http/http.ts';
import type {JsonObject} from './http/json.ts';
import {optionalString, readJson} from './http/request-body.ts';

export type LocalApi = {
  info: () => JsonObject;
  /** Proof that the server knows the token; see `proofOf`. */
  prove: (nonce: string) => string;
  fault: (kind: string, target: string) => Promise<string>;
  shutdown: () => void;
};

/** API of the emulator itself under `/_local`: state, faults and shutdown. Anyone may request the proof that it is this cloud. */
export function localRoutes({info, prove, fault, shutdown}: LocalApi): Route[] {
  const look: Handler = ({query}) => {
    const nonce = query.get('nonce');
    return {json: nonce === null ? {} : {proof: prove(nonce)}};
  };
  const injectFault: Handler = async ({body}) => {
    const {kind, target} = await readJson(body);
    try {
      const done = await fault(optionalString(kind, 'kind') ?? '', optionalString(target, 'target') ?? '');
      return {json: {done}};
    } catch (error) {
      if (error instanceof LocalCloudError) throw new ApiError(400, error.message);
      throw error;
    }
  };
  const end: Handler = () => {
    // The delay lets the answer be sent first.
    setTimeout(shutdown, 50);
    return {json: {done: 'shutting down'}};
  };
  return [
    ['GET', '/_local', look],
    ['GET', '/_local/state', () => ({json: info()})],
    ['POST', '/_local/faults', injectFault],
    ['POST', '/_local/shutdown', end],
  ];
}
