import {type IncomingHttpHeaders, request} from 'node:http';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {tokenUrl} from '../support/machine/a-cloud.ts';

type GoogleError = {code: number; message: string; errors: {reason: string}[]};
export type Answer = {
  status: number;
  headers: Headers;
  text: string;
  json: {error: GoogleError; generation?: string; size?: string; contentType?: string};
};

export const objects = '/storage/v1/b/gleaner-local/o';
export const uploads = `/upload${objects}`;

/** Cloud Storage over HTTP without a client library: the test writes each request. */
export class PlainHttp {
  readonly #cloud: () => LocalCloud;

  constructor(cloud: () => LocalCloud) {
    this.#cloud = cloud;
  }

  async call(method: string, path: string, init: RequestInit = {}): Promise<Answer> {
    const response = await fetch(tokenUrl(this.#cloud()) + path, {method, redirect: 'manual', ...init});
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.includes('json');
    return {status: response.status, headers: response.headers, text, json: JSON.parse(isJson ? text : '{}')};
  }

  put(
    name: string,
    body: string | Buffer<ArrayBuffer>,
    query = '',
    headers: Record<string, string> = {},
  ): Promise<Answer> {
    return this.call('POST', `${uploads}?uploadType=media&name=${encodeURIComponent(name)}${query}`, {
      body,
      headers,
    });
  }

  get(name: string, headers: Record<string, string> = {}): Promise<Answer> {
    return this.call('GET', `${objects}/${encodeURIComponent(name)}?alt=media`, {headers});
  }
}

/** Status and headers of the answer to `GET /_local`, for request headers that `fetch` refuses to send. */
export function headAs(
  port: number,
  headers: Record<string, string>,
): Promise<{status: number | undefined; headers: IncomingHttpHeaders}> {
  return new Promise((resolve, reject) => {
    const asked = request({host: '127.0.0.1', port, path: '/_local', headers}, answer => {
      answer.resume();
      resolve({status: answer.statusCode, headers: answer.headers});
    });
    asked.once('error', reject).end();
  });
}
