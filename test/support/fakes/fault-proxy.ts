/**
 * A proxy before Cloud Storage that breaks chosen requests, with the instructions of Google's storage testbench.
 * Each instruction breaks one request of its operation, in order. All other requests pass unchanged.
 */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http';
import {setTimeout as sleep} from 'node:timers/promises';
import {splitTokenPath} from '../../../emulator/http/token-path.ts';
import {listen} from '../machine/listen.ts';

/** `download` is a get of the content; `get` is a get of the metadata. */
export type Operation = 'list' | 'get' | 'download' | 'insert' | 'delete';

/** A request that reached the proxy. `answer`: the status, or the instruction that broke the request. */
export type Seen = {operation: Operation; range: string; answer: string};

export type FaultProxy = {
  url: string;
  /** Breaks the next requests of the operation, and forgets earlier instructions and requests. */
  breakNext: (operation: Operation, instructions: string[]) => void;
  /** Instructions that no request has met. */
  left: () => string[];
  seen: () => Seen[];
  close: () => Promise<void>;
};

type Fault =
  | {kind: 'answer'; status: number}
  | {kind: 'answer-after'; status: number; size_bytes: number}
  | {kind: 'lose-answer'; status: number}
  | {kind: 'reset'}
  | {kind: 'break-body'; size_bytes: number}
  | {kind: 'stall'; seconds: number; size_bytes: number}
  | {kind: 'damage'};

/** `return-STATUS-after-commit` is ours: the request succeeds, and its answer is lost. */
const INSTRUCTIONS: [RegExp, (match: string[]) => Fault][] = [
  [/^return-(\d{3})$/, ([, status]) => ({kind: 'answer', status: Number(status)})],
  [
    /^return-(\d{3})-after-(\d+)K$/,
    ([, status, k]) => ({kind: 'answer-after', status: Number(status), size_bytes: Number(k) * 1024}),
  ],
  [/^return-(\d{3})-after-commit$/, ([, status]) => ({kind: 'lose-answer', status: Number(status)})],
  [/^return-reset-connection$/, () => ({kind: 'reset'})],
  [/^return-broken-stream$/, () => ({kind: 'break-body', size_bytes: 10})],
  [/^return-broken-stream-after-(\d+)K$/, ([, k]) => ({kind: 'break-body', size_bytes: Number(k) * 1024})],
  [
    /^stall-for-(\d+)s-after-(\d+)K$/,
    ([, s, k]) => ({kind: 'stall', seconds: Number(s), size_bytes: Number(k) * 1024}),
  ],
  [/^stall-for-(\d+)s$/, ([, s]) => ({kind: 'stall', seconds: Number(s), size_bytes: -1})],
  [/^return-corrupted-data$/, () => ({kind: 'damage'})],
];

export type Call = {method: string; path: string; headers: IncomingHttpHeaders; body: Buffer};
export type Answer = {status: number; headers: IncomingHttpHeaders; body: Buffer};

export async function startFaultProxy(target: string): Promise<FaultProxy> {
  let broken: Operation | undefined;
  let faults: {instruction: string; fault: Fault}[] = [];
  let seen: Seen[] = [];
  const stop = new AbortController();

  async function serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = {
      method: message.method ?? 'GET',
      path: message.url ?? '/',
      headers: message.headers,
      body: await bytesOf(message),
    };
    const operation = operationOf(call);
    if (!operation) return send(response, await forward(target, call));
    const next = operation === broken && meets(faults[0]?.fault, call) ? faults.shift() : undefined;
    const entry = {operation, range: String(call.headers.range ?? ''), answer: next?.instruction ?? ''};
    seen.push(entry);
    if (next) return breakRequest(next.fault, call, response);
    const answer = await forward(target, call);
    entry.answer = String(answer.status);
    send(response, answer);
  }

  async function breakRequest(fault: Fault, call: Call, response: ServerResponse): Promise<void> {
    switch (fault.kind) {
      case 'answer':
        return send(response, errorOf(fault.status));
      case 'answer-after':
        if (isChunk(call)) await forward(target, beginningOf(call, fault.size_bytes));
        return send(response, errorOf(fault.status));
      case 'lose-answer':
        await forward(target, call);
        return send(response, errorOf(fault.status));
      case 'reset':
        response.socket?.resetAndDestroy();
        return;
      case 'damage': {
        const answer = await forward(target, call);
        return send(response, {...answer, body: answer.body.map(byte => byte ^ 1) as Buffer});
      }
      case 'break-body':
        await sendBeginning(response, await forward(target, call), fault.size_bytes);
        response.destroy();
        return;
      case 'stall': {
        const answer = await forward(target, call);
        if (fault.size_bytes >= 0) await sendBeginning(response, answer, fault.size_bytes);
        await sleep(fault.seconds * 1000, undefined, {signal: stop.signal}).catch(() => {});
        if (!response.headersSent) return send(response, answer);
        response.end(answer.body.subarray(fault.size_bytes));
        return;
      }
      default:
        return fault satisfies never;
    }
  }

  const server = createServer((message, response) => {
    serve(message, response).catch(() => response.destroy());
  });
  const url = `http://${await listen(server)}`;
  return {
    url,
    breakNext: (operation, instructions) => {
      faults = instructions.map(instruction => ({instruction, fault: parse(instruction)}));
      broken = operation;
      seen = [];
    },
    left: () => faults.map(({instruction}) => instruction),
    seen: () => seen,
    close: async () => {
      stop.abort();
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

function parse(instruction: string): Fault {
  for (const [pattern, faultOf] of INSTRUCTIONS) {
    const match = pattern.exec(instruction);
    if (match) return faultOf(match);
  }
  throw new Error(`Failed to read the instruction ${instruction}: use one of INSTRUCTIONS`);
}

function operationOf({method, path}: Call): Operation | undefined {
  const url = new URL(splitTokenPath(path).path, 'http://proxy');
  if (url.pathname.includes('/upload/')) return 'insert';
  const [, object] = /\/b\/[^/]+\/o(?:\/(.+))?$/.exec(url.pathname) ?? [];
  if (method === 'DELETE' && object) return 'delete';
  if (method !== 'GET') return undefined;
  if (object) return url.searchParams.get('alt') === 'media' ? 'download' : 'get';
  return /\/b\/[^/]+\/o$/.test(url.pathname) ? 'list' : undefined;
}

/** An instruction "after N bytes" of an upload waits for the request that carries byte N. */
function meets(fault: Fault | undefined, call: Call): boolean {
  if (!fault) return false;
  return fault.kind !== 'answer-after' || firstByteOf(call) + call.body.length > fault.size_bytes;
}

function isChunk({headers}: Call): boolean {
  return /^bytes \d/.test(headers['content-range'] ?? '');
}

function firstByteOf({headers}: Call): number {
  return Number(/^bytes (\d+)-/.exec(headers['content-range'] ?? '')?.[1] ?? 0);
}

/** The part of a resumable upload before byte `size_bytes`, which the server stores before it answers with an error. */
function beginningOf(call: Call, size_bytes: number): Call {
  const first = firstByteOf(call);
  const body = call.body.subarray(0, size_bytes - first);
  const range = {
    'content-range': `bytes ${first}-${size_bytes - 1}/*`,
    'content-length': String(body.length),
  };
  return {...call, body, headers: {...call.headers, ...range}};
}

export function forward(target: string, {method, path, headers, body}: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // The Host header of the client stays, so that the address of a resumable upload leads to the proxy.
    const {'transfer-encoding': _, connection: __, ...kept} = headers;
    const upstream = request(target + path, {
      ...{method, agent: false},
      headers: {...kept, ...(body.length > 0 ? {'content-length': String(body.length)} : {})},
    });
    upstream.once('error', reject);
    upstream.once('response', message => {
      bytesOf(message).then(
        bytes => resolve({status: message.statusCode ?? 500, headers: message.headers, body: bytes}),
        reject,
      );
    });
    upstream.end(body);
  });
}

export async function bytesOf(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function writeHead(response: ServerResponse, {status, headers}: Answer): void {
  const {connection: _, 'keep-alive': __, ...kept} = headers;
  response.writeHead(status, kept);
}

export function send(response: ServerResponse, answer: Answer): void {
  writeHead(response, answer);
  response.end(answer.body);
}

/** Sends the head with the whole length, and less than the whole body. */
async function sendBeginning(response: ServerResponse, answer: Answer, size_bytes: number): Promise<void> {
  writeHead(response, answer);
  const part = answer.body.subarray(0, Math.min(size_bytes, answer.body.length - 1));
  response.flushHeaders();
  await new Promise(written => response.write(part, written));
}

/** An error as Cloud Storage writes errors. */
function errorOf(status: number): Answer {
  const message = `A fault of the test: ${status}`;
  const body = Buffer.from(JSON.stringify({error: {code: status, message, errors: [{message}]}}));
  const headers = {'content-type': 'application/json', 'content-length': String(body.length)};
  return {status, headers, body};
}
