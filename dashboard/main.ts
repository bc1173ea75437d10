/** The program of the pages on Cloud Run. `terraform/start-dashboard.ts` starts it from the zip of the functions. */
import {loadConfig, servedPort} from '../shared/contracts/config.ts';
import {serveBehindIap} from './behind-iap.ts';

await serveBehindIap(loadConfig(), servedPort());
