/** A proxy before Cloud TPU that records each create and delete of one control plane. */
import {createServer, type IncomingMessage, type ServerResponse} from 'node:http';
import {bytesOf, type Call, forward, send} from '../support/fakes/fault-proxy.ts';
import {listen} from '../support/machine/listen.ts';

/** A create or a delete of a node or a queued resource. */
export type Change = {
  verb: 'create' | 'delete';
  name: string;
  /** Labels of the node that a create asks for. */
  labels: Record<string, string>;
  status: number;
  /** Name of the operation; undefined for a refused request. */
  operation: string | undefined;
};

export type TpuRecorder = {url: string; changes: Change[]; close: () => Promise<void>};

type Body = {labels?: Change['labels']; tpu?: {nodeSpec: {node: {labels?: Change['labels']}}[]}};

/** `target` is asked for at each request, because the cloud listens later than this proxy. */
export async function startTpuRecorder(target: () => string): Promise<TpuRecorder> {
  const changes: Change[] = [];

  async function serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const {method = 'GET', url: path = '/', headers} = message;
    const call = {method, path, headers, body: await bytesOf(message)};
    const answer = await forward(target(), call);
    const change = changeOf(call);
    if (change) {
      const {name} = JSON.parse(answer.body.toString()) as {name?: string};
      changes.push({...change, status: answer.status, operation: name});
    }
    send(response, answer);
  }

  const server = createServer((message, response) => {
    serve(message, response).catch(() => response.destroy());
  });
  const url = `http://${await listen(server)}`;
  return {
    url,
    changes,
    close: async () => {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

/** The change that a request asks for; undefined for a read. */
function changeOf({method, path, body}: Call): Pick<Change, 'verb' | 'name' | 'labels'> | undefined {
  const {pathname, searchParams} = new URL(path, 'http://proxy');
  if (method === 'DELETE') return {verb: 'delete', name: pathname.split('/').at(-1) ?? '', labels: {}};
  if (method !== 'POST') return undefined;
  const {labels, tpu} = JSON.parse(body.toString()) as Body;
  const name = searchParams.get('nodeId') ?? searchParams.get('queuedResourceId') ?? '';
  return {verb: 'create', name, labels: labels ?? tpu?.nodeSpec[0]?.node.labels ?? {}};
}
