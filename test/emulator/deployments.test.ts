import assert from 'node:assert/strict';
import {join} from 'node:path';
import {accountsOf, Identities} from '../../emulator/http/identity.ts';
import {claimsOf} from '../support/fakes/tokens.ts';
import {functionsModule, put, Scratch, type Seen, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

describe('Two deployments on one local cloud', () => {
  const scratch = new Scratch(afterEach);

  async function both() {
    const dir = scratch.dir();
    const file = join(dir, 'seen.jsonl');
    return scratch.cloudWithFunctions({
      dir,
      deployments: [
        {name: 'gleaner', bucket: 'one'},
        {name: 'other', bucket: 'two'},
      ],
      function_host: {module: functionsModule, env: {SEEN: file}},
    });
  }
  const topicOf = ({source}: Seen) => source.split('/').at(-1);

  it('get the notifications of their own bucket, in processes of their own', async () => {
    const {cloud, seen} = await both();
    await put(cloud, 'datasets/a');
    await put({...cloud, bucket: 'two'}, 'datasets/b');
    await until('both notifications arrived', () => seen().length === 2);
    const got = seen().map(each => [topicOf(each), each.data.message.attributes.objectId]);
    assert.deepEqual(got.toSorted(), [
      ['objects', 'datasets/a'],
      ['other-objects', 'datasets/b'],
    ]);
    assert.equal(new Set(seen().map(({pid}) => pid)).size, 2);
  });

  it('get the messages of their own topics', async () => {
    const {cloud, seen} = await both();
    const topics = `${tokenUrl(cloud)}/v1/projects/${cloud.project}/topics`;
    for (const topic of ['control', 'other-control', 'other-tpu']) {
      const data = Buffer.from(topic).toString('base64');
      const body = JSON.stringify({messages: [{data}]});
      assert.equal((await fetch(`${topics}/${topic}:publish`, {method: 'POST', body})).status, 200);
    }
    await until('three messages arrived', () => seen().length === 3);
    const got = seen().map(each => [each.function, topicOf(each), each.text]);
    assert.deepEqual(got.toSorted(), [
      ['on-control', 'control', 'control'],
      ['on-control', 'other-control', 'other-control'],
      ['on-tpu', 'other-tpu', 'other-tpu'],
    ]);
  });

  it('have a job of the Scheduler and an address of worker-api each', async () => {
    const {cloud, seen} = await both();
    const jobs = `projects/${cloud.project}/locations/us-central1/jobs`;
    const run = (job: string) => fetch(`${tokenUrl(cloud)}/v1/${jobs}/${job}:run`, {method: 'POST'});
    assert.equal((await run('gleaner-tick')).status, 200);
    assert.equal((await run('other-tick')).status, 200);
    assert.equal((await run('third-tick')).status, 404);
    await until('two ticks arrived', () => seen().length === 2);
    assert.equal(new Set(seen().map(({pid}) => pid)).size, 2);
    for (const name of ['worker-api', 'other-worker-api']) {
      const answer = await fetch(`${tokenUrl(cloud)}/functions/${name}/deep?x=1`);
      const {path, query} = (await answer.json()) as {path: string; query: object};
      assert.deepEqual({path, query}, {path: '/deep', query: {x: '1'}});
    }
    assert.equal((await fetch(`${tokenUrl(cloud)}/functions/third-worker-api`)).status, 404);
  });
});

describe('Deployments whose names begin alike, on one local cloud', () => {
  const scratch = new Scratch(afterEach);

  it('have each their own worker-api, which only their own accounts may call', async () => {
    const names = ['gleaner', 'team', 'team-a'];
    const {cloud} = await scratch.cloudWithFunctions({
      deployments: names.map(name => ({name, bucket: `bucket-of-${name}`})),
    });
    const identities = new Identities(cloud.dir);
    const addresses = ['worker-api', 'team-worker-api', 'team-a-worker-api'];
    const ask = async (address: string, account: string) => {
      const url = `${cloud.url}/functions/${address}`;
      const authorization = `Bearer ${identities.sign(claimsOf(account, url))}`;
      const answer = await fetch(url, {headers: {authorization}});
      return answer.ok ? ((await answer.json()) as {deployment: string}).deployment : answer.status;
    };
    for (const [index, address] of addresses.entries()) {
      const answers = await Promise.all(
        names.map(name => ask(address, accountsOf(cloud.project, name).worker)),
      );
      assert.deepEqual(
        answers,
        names.map((name, other) => (other === index ? name : 403)),
        address,
      );
    }
  });
});
