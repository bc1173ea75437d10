/** Jobs that read their inputs and write their own folder of the bucket, with ordinary clients that know nothing of Gleaner. */
import assert from 'node:assert/strict';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {aRun} from '../world/builders.ts';
import {JobHome} from './job-home.ts';

const OWN = 'checkpoints/mine/own';

/** Writes, replaces, copies, lists, reads and deletes, and then tries what no job may. The result counts and names what happened. */
const CLIENT = `
import io, json, os
import gleaner_reader
from google.api_core.exceptions import Forbidden
from google.cloud import storage

rows = sum(array.sum() for array in gleaner_reader.open(os.environ["JOB_INPUT_0"]).layer(0))
bucket_name, _, own = os.environ["JOB_CHECKPOINT_URL"].removeprefix("gs://").partition("/")
client = storage.Client()
bucket = client.get_bucket(bucket_name)  # its settings, as Orbax reads them

large = bucket.blob(own + "/large", chunk_size=1 << 18)  # a resumable upload, of several requests
large.upload_from_file(io.BytesIO(b"x" * (3 << 18)))
for text in ("one", "two"):
    bucket.blob(own + "/step/a.txt").upload_from_string(text)
bucket.blob(own + "/all").compose([bucket.blob(own + "/large"), bucket.blob(own + "/step/a.txt")])
bucket.rename_blob(bucket.blob(own + "/step/a.txt"), own + "/step/b.txt")
names = [blob.name.removeprefix(own + "/") for blob in bucket.list_blobs(prefix=own + "/")]
read = bucket.get_blob(own + "/step/b.txt").download_as_text()
with client.batch():
    bucket.blob(own + "/large").delete()

def outcome(attempt):
    try:
        return str(attempt())
    except Forbidden:
        return "forbidden"

refused = {
    "writes to another job": outcome(lambda: bucket.blob("checkpoints/other/own/a").upload_from_string("x")),
    "reads another run": outcome(lambda: bucket.blob("activations/other/manifest.json").download_as_text()),
    "copies into another job": outcome(lambda: bucket.copy_blob(bucket.blob(own + "/all"), bucket, "checkpoints/other/own/b")),
    "composes another job": outcome(lambda: bucket.blob(own + "/stolen").compose([bucket.blob("checkpoints/other/own/kept")])),
}
result = json.dumps({"rows": float(rows), "names": names, "read": read, "refused": refused})
`;

/** A shard of one layer: a header with the place of the tensor, and the values 1 to 4. */
function aShard(): Uint8Array {
  const header = JSON.stringify({'resid_post.0': {dtype: 'F32', shape: [2, 2], data_offsets: [0, 16]}});
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, Buffer.from(header), Buffer.from(new Float32Array([1, 2, 3, 4]).buffer)]);
}

describe('The bucket of a job on a local cloud', () => {
  let cloud: JobHome;
  before(async () => {
    cloud = await JobHome.start(1);
    const {objects} = cloud.home;
    await objects.create('activations/my-run/tpu_0/shard_0001.safetensors', aShard());
    await objects.create('activations/other/manifest.json', Buffer.from('{}'));
    await objects.create('checkpoints/other/own/kept', Buffer.from('kept'));
    await cloud.home.read(store =>
      store.transaction(async tx => runRecords.set(tx, aRun({run: 'my-run', status: 'completed'}))),
    );
  });
  after(() => cloud?.remove());

  it('has its own folder and its inputs, and nothing else, for the client of Cloud Storage', async () => {
    await cloud.send('mine', {code: CLIENT, inputs: ['run:my-run'], timeout: 120});
    const job = await cloud.ends('mine');
    assert.equal(job.error, null, await cloud.output('mine'));
    const {rows, names, read, refused} = JSON.parse(job.result ?? '');
    assert.deepEqual([rows, names, read], [10, ['all', 'large', 'step/b.txt'], 'two']);
    for (const [what, outcome] of Object.entries(refused)) assert.equal(outcome, 'forbidden', what);
    const left = (await cloud.home.objects.list(`${OWN}/`)).map(({name}) => name);
    assert.deepEqual(left, [`${OWN}/all`, `${OWN}/step/b.txt`]);
  });

  it('is no input where its name is that of no run', async () => {
    const words = ['jobs', 'submit', '--command', '--input', 'run:no-run', '--', 'true'];
    const {code, stderr} = await cloud.gleaner(...words);
    assert.equal(code, 1);
    assert.match(stderr, /input run:no-run does not exist/);
    assert.match(await cloud.succeeds('jobs', 'show', 'mine'), /inputs +run:my-run/);
  });
});
