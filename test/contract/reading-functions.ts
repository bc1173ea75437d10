/** Functions that read the object BUCKET/NAME through ENDPOINT: `guarded` with Objects, `bare` with Google's client alone. */
import {type HttpFunction, http} from '@google-cloud/functions-framework';
import {Storage} from '@google-cloud/storage';
import {openObjects} from '../../shared/google/objects.ts';

const {ENDPOINT: endpoint = '', BUCKET: bucket = '', NAME: name = '', TOKEN: token = ''} = process.env;

function answering(read: () => Promise<Uint8Array | undefined>): HttpFunction {
  return async (_request, response) => {
    response.send(Buffer.from((await read()) ?? 'no object'));
  };
}

const objects = openObjects({project: 'p', bucket, endpoint, token});
http(
  'guarded',
  answering(() => objects.read(name, {max_bytes: 100})),
);

const file = new Storage({projectId: 'p', apiEndpoint: endpoint}).bucket(bucket).file(name);
http(
  'bare',
  answering(async () => (await file.download())[0]),
);
