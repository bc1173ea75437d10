import {withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {requireRunning} from '../../client/connection/connection.ts';
import {counted} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {storeCatalog} from '../../shared/control-plane/documents/prices.ts';
import {addSkus, type Found, NO_PRICES} from '../../shared/domain/billing/catalog.ts';
import {openCatalog} from '../../shared/google/billing-catalog.ts';

/** Reads the prices of TPU chips in the Billing Catalog, and writes them into `prices/chips`. */
export async function updatePrices(options: CloudOptions): Promise<void> {
  await withCloud(options, async ({connection, store}) => {
    requireRunning(connection);
    const {storage_endpoint: endpoint, token} = connection;
    const catalog = openCatalog({endpoint, token});
    let found: Found = NO_PRICES;
    say('Reading the prices of Compute Engine in the Cloud Billing Catalog');
    for (let page: string | undefined = ''; page !== undefined; ) {
      const {skus, next} = await catalog.page(page);
      found = addSkus(found, skus, Date.now());
      page = next === '' ? undefined : next;
    }
    const {dry_run = false} = options;
    const {prices, changed, kept} = await storeCatalog(store, found, Date.now(), {dry_run});
    const verb = dry_run ? 'would change' : 'changed';
    print<'prices update'>(options.json, {dry_run, prices, changed, kept}, [
      `${counted(changed.length, 'price')} ${verb}${changed.length > 0 ? ':' : ''}`,
      ...changed.map(text => `  ${text}`),
      ...(kept.length > 0 ? [`${counted(kept.length, 'price')} not of the catalog:`] : []),
      ...kept.map(text => `  ${text}`),
    ]);
  });
}
