import assert from 'node:assert/strict';
import {rmSync} from 'node:fs';
import {answers} from '../../../../client/json/index.ts';
import {put} from '../../../support/machine/a-cloud.ts';
import {gleaner} from '../../../support/machine/command.ts';
import {Upload} from '../streams/an-upload.ts';

describe('The upload of streams', () => {
  const to = new Upload();

  it('the upload of streams puts run.json and every stream under the names that a run reads', async () => {
    await to.streams(5, 2);
    to.folder.put('streams/run.json', '{"layers": "all"}');
    const whole = await to.start();
    assert.deepEqual(answers['streams upload']?.parse(whole), whole);
    const {seconds, ...report} = whole;
    assert.ok(seconds > 0);
    const bytes = to.folder.streams('streams').join('').length;
    assert.deepEqual(report, {
      ...{run: to.run, bucket: to.cloud.bucket, prefix: `datasets/${to.run}/`, spec: 'uploaded', streams: 2},
      ...{uploaded: 2, already_there: 0, bytes, uploaded_bytes: bytes},
    });
    const [first, second] = to.folder.streams('streams');
    assert.deepEqual(await to.stored(), [
      ['run.json', '{"layers": "all"}'],
      ['stream_000.jsonl', first],
      ['stream_001.jsonl', second],
    ]);
  });

  it('the upload of streams skips what is there, and uploads the rest', async () => {
    await to.streams(6, 3);
    await put(to.cloud, `datasets/${to.run}/stream_001.jsonl`, to.folder.streams('streams')[1]);
    const {uploaded, already_there} = await to.start();
    assert.deepEqual([uploaded, already_there], [2, 1]);
    const again = await to.start();
    assert.deepEqual([again.uploaded, again.already_there, again.uploaded_bytes], [0, 3, 0]);
  });

  for (const {name, content} of [
    {name: 'another size', content: 'other'},
    {name: 'the same size', content: undefined},
  ])
    it(`the upload of streams replaces no object of other content and ${name}, and sends nothing`, async () => {
      await to.streams(4, 2);
      const there = content ?? to.folder.streams('streams')[1]?.replaceAll('row', 'ROW');
      await put(to.cloud, `datasets/${to.run}/stream_001.jsonl`, there);
      await assert.rejects(
        to.start(),
        /stream_001\.jsonl exists with other content .* choose another name for the run/,
      );
      assert.deepEqual(await to.stored(), [['stream_001.jsonl', there]]);
    });

  it('the upload of streams replaces no object of the same size for a folder without checksums', async () => {
    await to.streams(4, 2);
    rmSync(to.folder.at('streams/checksums.json'));
    const there = to.folder.streams('streams')[1]?.replaceAll('row', 'ROW');
    await put(to.cloud, `datasets/${to.run}/stream_001.jsonl`, there);
    await assert.rejects(
      to.start(),
      /stream_001\.jsonl exists with other content .*: crc32c .* there, .* here/,
    );
  });

  it('the upload of streams refuses a stream that the run has in its other form', async () => {
    await to.streams(2, 1);
    await put(to.cloud, `datasets/${to.run}/stream_000.jsonl.gz`, 'x');
    await assert.rejects(to.start(), /the run has this stream as gs:/);
  });

  it('the upload of streams refuses a spec that differs from the spec of the run', async () => {
    await to.streams(2, 1);
    to.folder.put('streams/run.json', '{}');
    await put(to.cloud, `datasets/${to.run}/run.json`, '{"layers":"all"}');
    await assert.rejects(to.start(), /run\.json has other content/);
  });

  const changed = (name: string, change: () => void, error: RegExp) =>
    it(`the upload of streams refuses ${name}, and sends nothing`, async () => {
      await to.streams(4, 2);
      change();
      await assert.rejects(to.start(), error);
      assert.deepEqual(await to.stored(), []);
    });
  changed(
    'a longer stream than checksums.json says',
    () => to.folder.put('streams/stream_000.jsonl', 'longer and longer and longer'),
    /stream_000\.jsonl has changed since/,
  );
  changed(
    'a missing stream',
    () =>
      to.folder.put(
        'streams/checksums.json',
        to.folder.text('streams/checksums.json').replace('stream_001', 'stream_002'),
      ),
    /stream_002\.jsonl is missing in /,
  );
  changed(
    'a stream without a checksum',
    () => to.folder.put('streams/stream_009.jsonl', '{}'),
    /not in checksums\.json/,
  );
  changed(
    'a name that is no stream',
    () => to.folder.put('streams/stream_7.jsonl', '{}'),
    /1 file that no run reads: stream_7\.jsonl/,
  );
  changed('an incomplete folder', () => to.folder.put('streams/.create/pid', '1'), /is incomplete: wait/);
  changed(
    'both forms of a stream',
    () => to.folder.put('streams/stream_000.jsonl.gz', ''),
    /has stream 000 twice/,
  );
  changed(
    'damaged checksums',
    () => to.folder.put('streams/checksums.json', '{}'),
    /checksums\.json.*create the streams again/s,
  );
  changed('an invalid run.json', () => to.folder.put('streams/run.json', '{"layer": 1}'), /run\.json.*layer/);

  it('the upload of streams refuses a stream of the same size with other content than checksums.json says', async () => {
    await to.streams(4, 1);
    to.folder.put(
      'streams/stream_000.jsonl',
      to.folder.text('streams/stream_000.jsonl').replaceAll('row', 'ROW'),
    );
    await assert.rejects(to.start(), /stream_000\.jsonl has changed since/);
    assert.deepEqual(await to.stored(), []);
  });

  it('the upload of streams refuses an empty folder, a missing folder and a missing bucket with what to do', async () => {
    await assert.rejects(to.start(), /Failed to read the folder/);
    to.folder.put('streams/.hidden', '');
    await assert.rejects(to.start(), /There is no stream in .*: create streams/);
    to.folder.put('streams/stream_000.jsonl', '{}');
    await assert.rejects(
      to.start({}, {bucket: 'absent'}),
      /gs:\/\/absent.*bucket does not exist.*create the bucket/i,
    );
  });

  it('the upload of streams prints the commands of gcloud that upload the same files', async () => {
    await to.streams(2, 2);
    to.folder.put('streams/run.json', '{}');
    const {stdout} = await gleaner([
      'streams',
      'upload',
      to.folder.at('streams'),
      '--run',
      to.run,
      '--dry-run',
      '--port',
      to.port,
    ]);
    const [from, place] = [to.folder.at('streams'), `gs://${to.cloud.bucket}/datasets/${to.run}/`];
    assert.deepEqual(stdout.split('\n'), [
      `gcloud storage cp --no-clobber ${from}/run.json ${place}`,
      `gcloud storage cp --no-clobber ${from}/stream_*.jsonl ${place}`,
      '',
    ]);
    assert.deepEqual(await to.stored(), []);
  });
});
