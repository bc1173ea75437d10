/** A receiver of notifications on this machine, with a port of its own. */
import {createServer, type IncomingHttpHeaders, type ServerResponse} from 'node:http';
import {addressOf, listen} from '../machine/listen.ts';

export type Asked = {method: string | undefined; headers: IncomingHttpHeaders; body: string};

export class WebhookServer {
  readonly asked: Asked[] = [];
  /** Answers each request. */
  answer: (response: ServerResponse) => void = response => response.writeHead(204).end();
  readonly #server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const {method, headers} = request;
    this.asked.push({method, headers, body: Buffer.concat(chunks).toString()});
    this.answer(response);
  });

  static async start(): Promise<WebhookServer> {
    const receiver = new WebhookServer();
    await listen(receiver.#server);
    return receiver;
  }

  get origin(): string {
    return `http://${addressOf(this.#server)}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(closed => this.#server.close(closed));
  }
}
