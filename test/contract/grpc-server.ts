/** A gRPC server on loopback with the services of a Google client, which the test scripts call by call. */
import {createRequire} from 'node:module';
import {
  credentials,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import {fromJSON} from '@grpc/proto-loader';

// biome-ignore lint/suspicious/noExplicitAny: the protos of the client check each message on the wire
type Message = any;
/** Answers to a call, by the name of its method. A method without a row answers UNIMPLEMENTED. */
export type Answers = Record<string, (request: Message) => object>;

/** Fails a call with this status. */
export function refuse(word: keyof typeof status, details: string): never {
  throw Object.assign(new Error(details), {code: status[word], details});
}

export type GrpcCloud = {
  /** Options that point a client of Google's at the server. */
  options: {
    projectId: string;
    apiEndpoint: string;
    port: number;
    sslCreds: ReturnType<typeof credentials.createInsecure>;
  };
  close: () => void;
};

/** Serves the services of the package whose client has these protos. */
export async function serveGrpc(protos: string, services: string[], answers: Answers): Promise<GrpcCloud> {
  const definition = fromJSON(createRequire(import.meta.url)(protos), {
    longs: String,
    enums: String,
    defaults: true,
  });
  const root = loadPackageDefinition(definition);
  const server = new Server();
  for (const name of services) {
    const found = name
      .split('.')
      .reduce((inner: Message, part) => inner[part], root) as ServiceClientConstructor;
    const methods = Object.keys(found.service).map(method => [method, answerTo(answers, method)] as const);
    server.addService(found.service, Object.fromEntries(methods));
  }
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  return {
    options: {projectId: 'p', apiEndpoint: '127.0.0.1', port, sslCreds: credentials.createInsecure()},
    close: () => server.forceShutdown(),
  };
}

function answerTo(answers: Answers, method: string) {
  return (call: ServerUnaryCall<Message, Message>, callback: sendUnaryData<Message>): void => {
    try {
      const answer = answers[method] ?? (() => refuse('UNIMPLEMENTED', `${method} has no answer`));
      callback(null, answer(call.request));
    } catch (error) {
      callback(error as Error);
    }
  };
}
