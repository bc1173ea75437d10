/** Options of a Google API client that make it speak plain HTTP to `endpoint`, without credentials: the local cloud. */
export function clientOptionsFor(endpoint: string | undefined) {
  if (!endpoint) return {};
  const {protocol, hostname, port} = new URL(endpoint);
  return {
    fallback: true,
    protocol: protocol.slice(0, -1),
    apiEndpoint: hostname,
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
    // Any key will do: with one, the client does not go looking for somebody's real credentials.
    apiKey: 'local',
  };
}
