/** Calls of functions as the framework makes them. */
import {hash} from 'node:crypto';
import type {CloudEvent, Request, Response} from '@google-cloud/functions-framework';
import type {Deps} from '../../shared/control-plane/deps.ts';

export type Topic = 'object' | 'control' | 'tpu' | 'tick' | 'tasks' | 'job' | 'exec';
export type Handlers = Record<Topic, (deps: Deps, event: CloudEvent<unknown>) => Promise<void>>;
export type WorkerApi = (deps: Deps, request: Request, response: Response) => Promise<void>;

export function eventOf(id: string, topic: Topic, data: unknown): CloudEvent<unknown> {
  return {id, type: topic, source: 'test', specversion: '1.0', data};
}

/** The event of a new document of a job, as Eventarc sends it. Its data is not read. */
export function jobEvent(id: string, job: string, collection = 'jobs'): CloudEvent<unknown> {
  const type = 'google.cloud.firestore.document.v1.created';
  const subject = `documents/${collection}/${job}`;
  return {id, type, source: '//firestore.googleapis.com/test', specversion: '1.0', subject, data: undefined};
}

/** The data of the event of a message. */
export function messageData(messageId: string, text: string, publishTime: string, attributes = {}) {
  return {message: {data: Buffer.from(text).toString('base64'), messageId, publishTime, attributes}};
}

/** The data of the event of a new object: a notification of Cloud Storage on topic `objects`. */
export function notificationData(
  messageId: string,
  object: {bucket: string; name: string; generation: string},
  publishTime: string,
) {
  const {bucket, name, generation} = object;
  return messageData(messageId, JSON.stringify(object), publishTime, {
    ...{eventType: 'OBJECT_FINALIZE', payloadFormat: 'JSON_API_V1'},
    ...{bucketId: bucket, objectId: name, objectGeneration: generation},
  });
}

/** The text of a message on its way. */
export function textOf(data: unknown): string {
  return Buffer.from((data as {message: {data: string}}).message.data, 'base64').toString();
}

/** Headers of on-tick, and of a host with this secret. */
export const AS_CONTROL: Headers = {authorization: 'Bearer control'};
export const asHost = (secret: string): Headers => ({
  authorization: 'Bearer worker',
  'x-gleaner-secret': secret,
});

type Headers = Record<string, string>;

/** The secret of a host of an incarnation. Tests know it by the name; a real host draws it. */
export function secretOf(worker: string, incarnation: number, host = 0): string {
  return hash('sha256', `secret of ${worker}#${incarnation}, host ${host}`);
}

/** Asks worker-api. `answer` is called when the function answers, which may be before it ends. */
export async function askWorkerApi(
  workerApi: WorkerApi,
  deps: Deps,
  headers: Headers,
  body: object,
  answer: (status: number, body: object) => void,
): Promise<void> {
  const response = {
    statusCode: 0,
    status: (statusCode: number) => Object.assign(response, {statusCode}),
    json: (json: object) => answer(response.statusCode, JSON.parse(JSON.stringify(json))),
  };
  const all: Headers = {'content-type': 'application/json', ...headers};
  const request = {body, get: (name: string) => all[name]};
  await workerApi(deps, request as Request, response as unknown as Response);
}
