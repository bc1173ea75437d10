/** Options that make a Google API client send plain HTTP to `endpoint`, with the local cloud's token as its key. */
export function clientOptionsFor(endpoint: string | undefined, token = 'none') {
  if (!endpoint) return {};
  const {protocol, hostname, port} = new URL(endpoint);
  return {
    fallback: true,
    protocol: protocol.slice(0, -1),
    apiEndpoint: hostname,
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
    // A client with a key does not search for real credentials.
    apiKey: token,
  };
}
