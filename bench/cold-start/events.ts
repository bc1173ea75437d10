/** The first event of each function, in the order in which a stream becomes a node. */

export type First = {name: string; topic?: string; data: object; attributes?: Record<string, string>};

export const NODE = 'tpu-us-central1-a-0';

/** Each event does the usual work of its function: a stream is registered, a tick plans a node, the node is requested. */
export function firstEvents(bucket: string): First[] {
  return [
    {
      ...{name: 'on-object', topic: 'objects', data: {}},
      attributes: {
        ...{eventType: 'OBJECT_FINALIZE', payloadFormat: 'JSON_API_V1'},
        ...{bucketId: bucket, objectId: 'datasets/cold/stream_000.jsonl', objectGeneration: '1'},
      },
    },
    {name: 'on-tick', topic: 'tick', data: {}, attributes: {source: 'scheduler'}},
    {name: 'on-tpu', topic: 'tpu', data: {action: 'create', worker: NODE, incarnation: 1}},
    {name: 'on-control', topic: 'control', data: {action: 'pause', run: 'cold'}},
    {name: 'on-task', topic: 'tasks', data: {task: 'resync'}},
    {name: 'worker-api', data: {action: 'ping'}},
  ];
}
