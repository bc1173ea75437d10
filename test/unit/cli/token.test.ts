import assert from 'node:assert/strict';
import {cpSync, readdirSync} from 'node:fs';
import {createServer} from 'node:http';
import type {AddressInfo} from 'node:net';
import {runningCloud} from '../../../client/connection/connect.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {readToken} from '../../../emulator/http/guard.ts';
import {writeAddress} from '../../../emulator/state/own-folder.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';
import {Folder} from '../../support/machine/folder.ts';

describe('A gleaner command', () => {
  const scratch = new Scratch(after);
  const folder = new Folder(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud();
  });

  it('a gleaner command finds a local cloud of its user by port and by folder, with its token and its store', async () => {
    const {port, dir, token, store_file, pubsub_endpoint} = cloud;
    for (const named of [{port}, {dir}]) {
      const found = await runningCloud(named);
      assert.deepEqual(
        [found.dir, found.token, found.store_file, found.pubsub_endpoint],
        [dir, token, store_file, pubsub_endpoint],
      );
    }
  });

  it('a gleaner command finds no local cloud in a copy of its folder', async () => {
    const copy = folder.at('copy');
    cpSync(cloud.dir, copy, {recursive: true});
    assert.equal(readToken(copy), cloud.token);
    await assert.rejects(runningCloud({dir: copy}), /is stopped: start it/);
  });

  it('a gleaner command finds the running cloud of the current folder without an option', async () => {
    const own = await scratch.cloud({dir: folder.at('here/.gleaner/local')});
    const args = ['config', 'show', '--json'];
    const {stdout, stderr} = await gleaner(args, {cwd: folder.at('here')});
    assert.match(stdout, new RegExp(own.url), stderr);
  });
});

/** A server of somebody else, which answers every request in its own way. */
class Squatter {
  requests: string[] = [];
  answer: (path: string) => object | Promise<object> = () => ({});
  readonly #server = createServer(async (request, response) => {
    this.requests.push(`${request.method} ${request.url?.replace(/[0-9a-f]{32}$/, 'NONCE')}`);
    response.end(JSON.stringify(await this.answer(request.url ?? '')));
  });

  /** The port, or undefined where another program has it. */
  listen(port = 0): Promise<number | undefined> {
    return new Promise(resolve => {
      this.#server.once('error', () => resolve(undefined));
      this.#server.listen(port, '127.0.0.1', () => resolve((this.#server.address() as AddressInfo).port));
    });
  }

  close(): void {
    this.#server.close();
  }
}

const ONE_QUESTION = ['GET /_local?nonce=NONCE'];

describe('A server that has the port of a local cloud that a kill ended', () => {
  const scratch = new Scratch(after);
  const folder = new Folder(after);
  const squatter = new Squatter();
  let dir: string;
  let port: string;
  /** Notes the port in the folder of a cloud that has ended. */
  const leave = async (dir: string, port: number | undefined) => {
    const cloud = await scratch.cloud({dir});
    await cloud.close();
    writeAddress({...cloud, url: `http://127.0.0.1:${port}`});
  };
  before(async () => {
    port = String(await squatter.listen());
    dir = folder.at('.gleaner/local');
    await leave(dir, Number(port));
    folder.put('streams/stream_000.jsonl', '{"text": "private"}\n');
  });
  after(() => squatter.close());

  const lies: {name: string; lie: () => Promise<Squatter['answer']>}[] = [
    {name: 'names the folder', lie: async () => () => ({dir})},
    {name: 'names a folder without a token', lie: async () => () => ({dir: folder.at('foreign')})},
    {
      name: 'repeats the proof of another local cloud of the user',
      lie: async () => {
        const other = await scratch.cloud();
        return async path => (await (await fetch(`${other.url}${path}`)).json()) as object;
      },
    },
  ];
  for (const {name, lie} of lies)
    it(`a server that has the port of a local cloud that a kill ended gets one question and nothing else, and no file is created, when it ${name}`, async () => {
      const more = await lie();
      const info = {bucket: 'b', project: 'p', proof: 'x', store_file: folder.at('created.db')};
      squatter.answer = async path => ({...info, ...(await more(path))});
      const before = readdirSync(folder.path, {recursive: true});
      for (const args of [
        ['run', 'start', 'my-run', '--streams', folder.at('streams'), '--port', port],
        ['status', '--port', port],
        ['local', 'env', '--port', port],
        ['local', 'fault', 'stockout', 'all', '--port', port],
        ['local', 'env', '--dir', dir],
      ]) {
        squatter.requests = [];
        const {code, stderr} = await gleaner(args);
        assert.equal(code, 1, args.join(' '));
        assert.match(stderr, /No local cloud of yours runs on port |is stopped: start it/, args.join(' '));
        assert.deepEqual(squatter.requests, ONE_QUESTION, args.join(' '));
      }
      assert.deepEqual(readdirSync(folder.path, {recursive: true}), before);
    });

  it('a server that has the port of a local cloud that a kill ended gets nothing where no folder of the user names its port', async () => {
    const other = new Squatter();
    const {code, stderr} = await gleaner(['status', '--port', String(await other.listen())]);
    other.close();
    assert.equal(code, 1);
    assert.match(stderr, /No local cloud of yours runs on port .*: start one with `gleaner local up/);
    assert.deepEqual(other.requests, []);
  });
});
