import assert from 'node:assert/strict';
import {googleConnection} from '../../../cli/connect.ts';

describe('The deployment on Google Cloud that the environment names', () => {
  const place = {GLEANER_PROJECT: 'p', GLEANER_BUCKET: 'b'};
  const rows: {what: string; env: Record<string, string>; deployment: string; store: string}[] = [
    {what: 'the default deployment', env: {}, deployment: 'gleaner', store: 'firestore:gleaner'},
    {
      what: 'a second deployment',
      env: {GLEANER_DEPLOYMENT: 'other'},
      deployment: 'other',
      store: 'firestore:other',
    },
    {
      what: 'a named store',
      env: {GLEANER_DEPLOYMENT: 'other', GLEANER_STORE: 'firestore:kept'},
      deployment: 'other',
      store: 'firestore:kept',
    },
  ];
  for (const {what, env, deployment, store} of rows)
    it(`has the database of ${what}`, () => {
      const found = googleConnection({...place, ...env});
      assert.deepEqual([found?.deployment, found?.store], [deployment, store]);
    });

  it('needs a project and a bucket', () => {
    assert.equal(googleConnection({GLEANER_PROJECT: 'p'}), undefined);
    assert.equal(googleConnection({GLEANER_BUCKET: 'b'}), undefined);
  });

  it('needs a valid name', () => {
    assert.throws(
      () => googleConnection({...place, GLEANER_DEPLOYMENT: 'Team B'}),
      /GLEANER_DEPLOYMENT is "Team B"/,
    );
  });
});
