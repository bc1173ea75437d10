/** The first event of each function, in the order in which a stream becomes a node. */

/** A message on a topic, a new document of a collection, or a request. */
export type First = {
  name: string;
  topic?: string;
  document?: string;
  data: object;
  attributes?: Record<string, string>;
};

export const NODE = 'tpu-us-central1-a-0';

/**
 * Each event does the usual work of its function: a stream is registered, a job is scheduled, a tick plans a node, the node is
 * requested. A document has its `data`.
 */
export function firstEvents(bucket: string): First[] {
  return [
    {
      ...{name: 'on-object', topic: 'objects', data: {}},
      attributes: {
        ...{eventType: 'OBJECT_FINALIZE', payloadFormat: 'JSON_API_V1'},
        ...{bucketId: bucket, objectId: 'datasets/cold/stream_000.jsonl', objectGeneration: '1'},
      },
    },
    {name: 'on-job', document: 'jobs/cold', data: {code: 'print(1)'}},
    {name: 'on-tick', topic: 'tick', data: {}, attributes: {source: 'scheduler'}},
    {name: 'on-tpu', topic: 'tpu', data: {action: 'create', worker: NODE, incarnation: 1}},
    {name: 'on-control', topic: 'control', data: {action: 'pause', run: 'cold'}},
    {name: 'on-exec', topic: 'exec', data: {exec: 'cold', target: 'all', argv: ['true']}},
    {name: 'on-task', topic: 'tasks', data: {task: 'resync'}},
    {name: 'worker-api', data: {action: 'ping'}},
  ];
}
