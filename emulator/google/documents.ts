/** New documents on Google's Firestore emulator, which has no Eventarc: a listener of Google's client sees them. */
import {createRequire} from 'node:module';
import {dirname, join} from 'node:path';
import type {DocumentSnapshot} from '@google-cloud/firestore';
import {loadSync, type MessageTypeDefinition} from '@grpc/proto-loader';
import {PassThroughClient} from 'google-auth-library';

export type NewDocument = {
  /** Id of a database of the project. */
  database: string;
  /** `COLLECTION/ID`. */
  path: string;
  /** Time of the creation: seconds with nine digits, as Eventarc writes it. */
  created_at: string;
  /** DocumentEventData, serialised. */
  data: Buffer;
};

export type Watch = {
  host: string;
  project: string;
  database: string;
  collection: string;
  created: (document: NewDocument) => void;
  trouble: (error: unknown) => void;
};

const AGAIN_MS = 1000;

/**
 * Calls `created` with each document that is added to a collection from now on, until the returned function is called. After an error it
 * listens again with a new client, and a document that was added before the error may be reported twice.
 */
export async function watchDocuments(watch: Watch): Promise<() => Promise<void>> {
  const {host, project, database, collection, created, trouble} = watch;
  const {Firestore} = await import('@google-cloud/firestore');
  // Without its own client it would search for a metadata server for a second.
  const authClient = new PassThroughClient();
  const since = Date.now();
  const serialize = documentSerializer();
  let isOver = false;
  let end = async () => {};
  // Each try has a client of its own: one whose connection has failed may never listen again.
  const listen = (ready: () => void) => {
    const firestore = new Firestore({projectId: project, databaseId: database, host, ssl: false, authClient});
    let timer: NodeJS.Timeout | undefined;
    const stop = firestore.collection(collection).onSnapshot(
      snapshot => {
        for (const {type, doc} of snapshot.docChanges()) {
          if (type !== 'added' || doc.createTime.toMillis() < since) continue;
          const created_at = doc.createTime.toDate().toISOString().slice(0, 19);
          const nanos = String(doc.createTime.nanoseconds).padStart(9, '0');
          const data = eventData(serialize(protoOf(doc)));
          created({database, path: doc.ref.path, created_at: `${created_at}.${nanos}Z`, data});
        }
        ready();
      },
      error => {
        trouble(error);
        timer = setTimeout(() => void end().then(() => isOver || listen(ready)), AGAIN_MS);
      },
    );
    end = async () => {
      clearTimeout(timer);
      stop();
      await firestore.terminate();
    };
  };
  await new Promise<void>(listen);
  return () => {
    isOver = true;
    return end();
  };
}

/** The document as Firestore sends it. The method of Google's client is not in its types. */
function protoOf(document: DocumentSnapshot): object {
  return (document as unknown as {toDocumentProto: () => object}).toDocumentProto();
}

/** Serialises a `google.firestore.v1.Document`, whose fields have the same numbers as the Document in events. */
function documentSerializer(): (document: object) => Buffer {
  const client = createRequire(import.meta.url).resolve('@google-cloud/firestore/package.json');
  const includeDirs = [join(dirname(client), 'build', 'protos')];
  const types = loadSync('google/firestore/v1/document.proto', {includeDirs});
  const type = types['google.firestore.v1.Document'] as MessageTypeDefinition<object, object>;
  return document => type.serialize(document);
}

/** DocumentEventData with the document in its first field, `value`. */
function eventData(document: Buffer): Buffer {
  const length: number[] = [];
  for (let rest = document.length; ; rest = Math.floor(rest / 128)) {
    length.push(rest < 128 ? rest : (rest % 128) + 128);
    if (rest < 128) break;
  }
  return Buffer.concat([Buffer.from([10, ...length]), document]);
}
