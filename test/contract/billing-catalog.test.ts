import assert from 'node:assert/strict';
import {createServer} from 'node:http';
import {addSkus, NO_PRICES} from '../../shared/domain/billing/catalog.ts';
import {openCatalog} from '../../shared/google/billing-catalog.ts';
import {listen} from '../support/machine/listen.ts';
import {useLocalCloud} from './local-cloud.ts';

describe('Catalog: the Cloud Billing Catalog', () => {
  const cloud = useLocalCloud({tick_interval_ms: 60_000});

  it('reads the prices of chips in dollars an hour', async () => {
    const {url: endpoint, token} = cloud();
    const {skus, next} = await openCatalog({endpoint, token}).page('');
    const {chips, unknown} = addSkus(NO_PRICES, skus, Date.now());
    assert.deepEqual([next, unknown], ['', ['Tpu7x']]);
    assert.deepEqual(chips['v6e@us-east5'], {
      usd: 2.7,
      spot_usd: 1.4033,
      since_at: '2026-10-01T07:00:00.000Z',
    });
    assert.deepEqual(Object.keys(chips).sort(), [
      ...[
        'v5litepod@us-central1',
        'v6e@asia-northeast1',
        'v6e@europe-west4',
        'v6e@us-central1',
        'v6e@us-east5',
      ],
    ]);
  });

  it('asks for dollars and for the largest pages, follows the token, and names a refusal', async () => {
    const asked: string[] = [];
    const server = createServer(({url = ''}, response) => {
      asked.push(url);
      const isFirst = !url.includes('pageToken');
      response.statusCode = isFirst ? 200 : 403;
      const error = {
        code: 403,
        message: 'Cloud Billing API has not been used in project 7 before or it is disabled.',
      };
      response.end(JSON.stringify(isFirst ? {skus: [], nextPageToken: 'a b'} : {error}));
    });
    const catalog = openCatalog({endpoint: `http://${await listen(server)}`});
    const {next} = await catalog.page('');
    await assert.rejects(
      catalog.page(next),
      /Failed to read the prices .*has not been used in project 7.*enable/,
    );
    const path = '/v1/services/6F81-5844-456A/skus?pageSize=5000&currencyCode=USD';
    assert.deepEqual(asked, [path, `${path}&pageToken=a+b`]);
    server.close();
  });
});
