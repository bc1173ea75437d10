import {createRequire} from 'node:module';
import {
  loadPackageDefinition,
  type Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import {fromJSON} from '@grpc/proto-loader';
import {ApiError} from '../http/errors.ts';
import type {Identify} from '../http/guard.ts';
import {portInUse} from '../http/http.ts';
import {PUBLISH, PUBSUB, requirePermission} from '../http/permissions.ts';
import {refusePages} from '../http/web-pages.ts';
import type {Topics} from './topics.ts';

type GrpcMessage = {data: Buffer; attributes: Record<string, string>; orderingKey: string};

export type GrpcServer = {port: number; close(): void};

/**
 * `google.pubsub.v1.Publisher` for Google's clients with PUBSUB_EMULATOR_HOST. They send no credentials to an emulator, so the program adds
 * the token to the metadata of its calls.
 */
export async function servePublisher(
  topics: Topics,
  options: {port: number; identify: Identify},
): Promise<GrpcServer> {
  /** Restricts a call to holders of the token and accounts with the permission. */
  const authorized = <Call extends object, Answer>(answer: (call: Call) => Answer, permission = PUBSUB) =>
    unary<Call, Answer>((call, metadata) => {
      const caller = options.identify({authorization: String(metadata.get('authorization')[0] ?? '')});
      if (caller === undefined) throw new ApiError(401, UNAUTHENTICATED);
      const topic = 'topic' in call ? String(call.topic).split('/').at(-1) : '';
      requirePermission(caller, permission, topic);
      return answer(call);
    });
  const server = new Server({'grpc.max_receive_message_length': 16_000_000});
  server.addService(publisherService(), {
    Publish: authorized(
      ({topic, messages}: {topic: string; messages: GrpcMessage[]}) => ({
        messageIds: topics.publish(
          topic,
          messages.map(({data, attributes, orderingKey}) => ({
            data: Buffer.from(data).toString('base64'),
            attributes,
            ...(orderingKey ? {orderingKey} : {}),
          })),
        ),
      }),
      PUBLISH,
    ),
    GetTopic: authorized(({topic}: {topic: string}) => topics.get(topic)),
    CreateTopic: authorized(({name}: {name: string}) => topics.create(name)),
    ListTopics: authorized(({project}: {project: string}) => ({
      topics: topics.list(project.replace(/^projects\//, '')),
    })),
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${options.port}`, ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(portInUse(options.port, error)) : resolve(bound),
    );
  });
  return {port, close: () => server.forceShutdown()};
}

function publisherService(): ServiceClientConstructor['service'] {
  const protos = createRequire(import.meta.url)('@google-cloud/pubsub-api/build/protos/protos.json');
  const definition = fromJSON(protos, {longs: String, enums: String, defaults: true});
  const root = loadPackageDefinition(definition) as unknown as {
    google: {pubsub: {v1: {Publisher: ServiceClientConstructor}}};
  };
  return root.google.pubsub.v1.Publisher.service;
}

const UNAUTHENTICATED =
  "Refused a call without the token of the local cloud: Google's Pub/Sub clients send no token to an emulator. Publish with `gcloud pubsub topics publish`, or POST to /v1/projects/PROJECT/topics/TOPIC:publish with Authorization: Bearer TOKEN";

function unary<Request, Response>(answer: (request: Request, metadata: Metadata) => Response) {
  return (call: ServerUnaryCall<Request, Response>, callback: sendUnaryData<Response>): void => {
    try {
      const header = (name: string) => call.metadata.get(name)[0]?.toString();
      refusePages({
        host: call.getHost(),
        origin: header('origin'),
        'sec-fetch-site': header('sec-fetch-site'),
      });
      callback(null, answer(call.request, call.metadata));
    } catch (error) {
      const word = error instanceof ApiError ? error.word : 'INTERNAL';
      callback({
        code: status[word as keyof typeof status] ?? status.UNKNOWN,
        details: (error as Error).message,
      });
    }
  };
}
