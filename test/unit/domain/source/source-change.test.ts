import assert from 'node:assert/strict';
import type {Pool} from '../../../../shared/domain/records/pool.ts';
import {withSourceVersion} from '../../../../shared/domain/records/source.ts';
import {decideUpdate, type SourceUpdate} from '../../../../shared/domain/source/source-change.ts';
import {aConfig, at} from '../../../world/builders.ts';

const REPO = 'https://example.com/o/r';
const COMMIT = 'a'.repeat(40);

function aPool(changes: Partial<Pool> = {}): Pool {
  return {...aConfig().pool, ...changes};
}

const update = (pool: Pool, change: SourceUpdate, hasInternet = true, published_at = at(10)) =>
  decideUpdate(pool, change, hasInternet, published_at);

function applied(pool: Pool, change: SourceUpdate, published_at = at(10)): Pool {
  const decision = update(pool, change, true, published_at);
  assert.equal(decision.kind, 'applied', JSON.stringify(decision));
  return decision.kind === 'applied' ? decision.next : assert.fail();
}

function reasonOf(pool: Pool, change: SourceUpdate, hasInternet = true, published_at = at(10)): string {
  const decision = update(pool, change, hasInternet, published_at);
  return decision.kind === 'rejected' ? decision.reason : assert.fail(decision.what);
}

describe('an update of the source of a pool', () => {
  const repo = aPool({source: {repo: REPO, branch: 'main'}, source_version: 4});
  const cases = [
    {name: 'a bundle', pool: aPool(), source: {bundle: 'b'.repeat(64)}, is: {bundle: 'b'.repeat(64)}},
    {name: 'a branch of the known repo', pool: repo, source: {branch: 'b'}, is: {repo: REPO, branch: 'b'}},
    {name: 'a pull request of the known repo', pool: repo, source: {pr: 12}, is: {repo: REPO, pr: 12}},
    {
      name: 'a commit of the known repo',
      pool: repo,
      source: {commit: COMMIT},
      is: {repo: REPO, commit: COMMIT},
    },
    {
      name: 'another repo',
      pool: repo,
      source: {repo: `${REPO}2`, branch: 'b'},
      is: {repo: `${REPO}2`, branch: 'b'},
    },
    {name: 'no source', pool: repo, source: null, is: null},
  ];
  for (const {name, pool, source, is} of cases)
    it(`sets ${name}, and its version grows`, () => {
      const next = applied(pool, {source});
      assert.deepEqual(next.source, is);
      assert.equal(next.source_version, pool.source_version + 1);
      assert.equal(next.version, pool.version, 'the deployed size stays in force');
    });

  it('with the same source, or with none, is a new version all the same', () => {
    const once = applied(repo, {source: {branch: 'main'}});
    const twice = applied(once, {}, at(11));
    assert.deepEqual([once.source_version, twice.source_version], [5, 6]);
    assert.deepEqual(twice.source, repo.source);
  });

  it('without a repository to take is rejected', () => {
    assert.match(reasonOf(aPool(), {source: {branch: 'b'}}), /pool tpu has no repository yet: name its repo/);
    const bundle = aPool({source: {bundle: 'b'.repeat(64)}});
    assert.match(reasonOf(bundle, {source: {pr: 1}}), /has no repository yet/);
    assert.match(reasonOf(aPool(), {}), /has no source to update from/);
  });

  it('changes only the given fields of the environment', () => {
    const first = applied(aPool(), {environment: {ramfs_dir: '/mnt/ramfs', jax_version: '0.4.30'}});
    const second = applied(first, {environment: {jax_version: null}}, at(11));
    assert.deepEqual([second.environment.ramfs_dir, second.environment.jax_version], ['/mnt/ramfs', null]);
    assert.equal(second.source_version, 2);
  });

  it('that was published before the last update is rejected, field by field', () => {
    const later = applied(repo, {source: {branch: 'late'}}, at(20));
    assert.match(reasonOf(later, {source: {branch: 'early'}}, true, at(10)), /outdated: .*source/);
    const both = applied(later, {source: {branch: 'early'}, environment: {ramfs_dir: '/mnt/r'}}, at(10));
    assert.deepEqual(both.source, {repo: REPO, branch: 'late'});
    assert.equal(both.environment.ramfs_dir, '/mnt/r');
  });

  it('of only the environment leaves the source to a message published before', () => {
    const next = applied(repo, {environment: {ramfs_dir: '/mnt/r'}}, at(20));
    assert.deepEqual(applied(next, {source: {branch: 'early'}}, at(10)).source, {
      repo: REPO,
      branch: 'early',
    });
  });

  it('with a bundle is rejected beside a setup script of the pool that needs the internet', () => {
    const pool = applied(aPool(), {environment: {setup_script: 'pip install x'}});
    assert.match(
      reasonOf(pool, {source: {bundle: 'b'.repeat(64)}}, false, at(11)),
      /which a setup script needs/,
    );
  });

  const online: [string, SourceUpdate][] = [
    ['a repository', {source: {repo: REPO, branch: 'b'}}],
    ['another JAX version', {environment: {jax_version: 'nightly'}}],
    ['a setup script', {environment: {setup_script: 'pip install x'}}],
  ];
  for (const [name, change] of online)
    it(`with ${name} is rejected in one line where workers have no way to the internet`, () => {
      const reason = reasonOf(aPool(), change, false);
      assert.match(reason, /pool tpu has no way to the internet, which .* needs: use a bundle/);
      assert.equal(reason.includes('\n'), false);
    });

  it('with a bundle needs no internet', () => {
    assert.equal(update(aPool(), {source: {bundle: 'b'.repeat(64)}}, false).kind, 'applied');
  });
});

describe('the source version of a worker', () => {
  const worker = {pool: 'tpu', source_version: 3};
  it('never decreases, and is that of its own pool', () => {
    assert.equal(withSourceVersion(worker, {pool: 'tpu', source_version: 4}).source_version, 4);
    assert.equal(withSourceVersion(worker, {pool: 'tpu', source_version: 2}), worker);
    assert.equal(withSourceVersion(worker, {pool: 'other', source_version: 9}), worker);
  });
});
