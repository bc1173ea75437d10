/** Events of new documents, as Eventarc delivers them to a function: CloudEvents in binary content mode. */
import type {Deployment} from './subscriptions.ts';
import type {Triggers} from './triggers.ts';

/** A function that gets an event for each new document of a collection. */
export type DocumentTrigger = {
  /** Name of the receiver of the events, which no subscription has. */
  name: string;
  deployment: string;
  function: string;
  collection: string;
  timeout_s: number;
};

/** Eventarc drops an event after a day, without a dead letter. */
export const EVENT_RETENTION_S = 86_400;

/** Triggers of new documents in the file of triggers, with `collection` in place of the one in the file. */
export function documentTriggersOf(
  {functions}: Triggers,
  {name: deployment}: Pick<Deployment, 'name'>,
  collection?: string,
): DocumentTrigger[] {
  return functions.flatMap(({name, trigger, timeout_s}) =>
    trigger.kind !== 'document'
      ? []
      : {
          ...{name: `documents/${deployment}-${name}`, deployment, function: name, timeout_s},
          collection: collection ?? trigger.collection,
        },
  );
}

export type DocumentEvent = {
  database: string;
  /** `COLLECTION/ID`. */
  path: string;
  created_at: string;
  /** DocumentEventData in base64. */
  data: string;
};

/** Headers and body of the request that delivers an event. */
export function documentRequest(id: string, event: DocumentEvent, project: string) {
  const {database, path, created_at, data} = event;
  return {
    headers: {
      'content-type': 'application/protobuf',
      'ce-specversion': '1.0',
      'ce-id': id,
      'ce-type': 'google.cloud.firestore.document.v1.created',
      'ce-source': `//firestore.googleapis.com/projects/${project}/databases/${database}`,
      'ce-subject': `documents/${path}`,
      'ce-time': created_at,
      'ce-dataschema':
        'https://github.com/googleapis/google-cloudevents/blob/main/proto/google/events/cloud/firestore/v1/data.proto',
      'ce-document': path,
      'ce-database': database,
      'ce-project': project,
      'ce-location': 'us-central1',
      'ce-namespace': '(default)',
    },
    body: Buffer.from(data, 'base64'),
  };
}
