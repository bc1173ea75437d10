/** The services of Google that a deployment needs in its region. */
import {type GoogleApi, listAll} from '../../client/google/api.ts';
import type {Settings} from './settings.ts';

/** By service: the settings of its location, of which the first one that is given counts. A trigger is where its database is. */
const SERVICES: readonly [name: string, version: string, ...settings: string[]][] = [
  ['cloudscheduler', 'v1', 'scheduler_region', 'region'],
  ['cloudfunctions', 'v2', 'region'],
  ['eventarc', 'v1', 'eventarc_location', 'firestore_location', 'region'],
  ['artifactregistry', 'v1', 'region'],
  ['firestore', 'v1', 'firestore_location', 'region'],
];

/** A line for each service that is not where the settings want it; one line if that is no region. */
export async function unservedRegions(api: GoogleApi, settings: Settings): Promise<string[]> {
  const lines = SERVICES.map(async ([service, version, ...names]) => {
    const given = names.find(name => (settings[name] ?? null) !== null) ?? '';
    const wanted = String(settings[given]);
    // A multi-region of the database, or no trigger.
    if (given !== 'region' && !wanted.includes('-')) return [];
    const address = `${service}.googleapis.com/${version}/projects/${settings.project}/locations`;
    const places = (await listAll(api, address, 'locations')).map(({locationId}) => String(locationId));
    if (places.includes(wanted)) return [];
    const area = wanted.split('-', 1)[0];
    const near = places.filter(place => place.startsWith(`${area}-`)).join(', ');
    const mend = `set \`${names[0]}\` to one of ${near || places.join(', ')}`;
    const trigger = 'set `eventarc_location` to none, or take another `firestore_location`';
    return [`${service} does not serve ${wanted}: ${service === 'eventarc' ? trigger : mend}`];
  });
  const all = (await Promise.all(lines)).flat();
  const isNoRegion = all.length === SERVICES.length;
  return isNoRegion
    ? [`${settings.region} is no region of Google: set \`region\`, such as us-central1`]
    : all;
}
