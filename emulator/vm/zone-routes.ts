/** Routes of an API that has TPUs, as a table. */

import {ApiError} from '../http/errors.ts';
import type {Request, Route} from '../http/http.ts';
import type {JsonObject} from '../http/json.ts';
import type {Faults} from '../state/faults.ts';
import {zones} from '../state/zones.ts';

/** By method, path and permission: an answer, which gets a zone that the request may name, and the name of the resource in the path. */
export type ZoneRoutes = {
  [route: `${'GET' | 'POST' | 'DELETE'} /${string} ${string}`]: (
    zone: string,
    name: string,
    request: Request,
  ) => JsonObject | Promise<JsonObject>;
};

export function zoneRoutes(at: string, routes: ZoneRoutes, checked: (request: Request) => string): Route[] {
  return Object.entries(routes).map(([route, answer]) => {
    const [method = '', path = '', permission = ''] = route.split(' ');
    const handle = async (request: Request) => ({
      json: await answer(checked(request), request.params.name ?? '', request),
    });
    return [method, `${at}${path}`, handle, permission];
  });
}

/** Zone of a request. Throws for a zone that is unknown or does not answer. */
export function zoneOf({params: {zone = ''}}: Request, faults: Faults, unknown: ApiError): string {
  if (!zones.includes(zone)) throw unknown;
  if (faults.zone('unreachable', zone) === undefined) return zone;
  throw new ApiError(503, `The service is currently unavailable in ${zone}`);
}
