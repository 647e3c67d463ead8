// An OAuth client for tests that knows nothing of Onym: panva's oauth4webapi. It is told a resource's URL and
// its own id and secret, and finds the rest: asked without a token, the resource names its metadata (RFC 9728),
// that names the authorization server, whose metadata (RFC 8414) names the token endpoint.
//
//   node client.mjs NODE_MODULES < settings.json
//
// Prints one line of JSON: the challenge, the metadata, the token, and the answer to the call with it. With `dpop`, the token is
// bound to a key of the client, who proves it; `retries` says how often each server asked for a nonce, and `again` is the
// answer to a second call.
import { createRequire } from 'node:module';
import { request } from 'node:https';
import { pathToFileURL } from 'node:url';

let input = '';
for await (const piece of process.stdin) input += piece;
const settings = JSON.parse(input);
const require = createRequire(`${process.argv[2]}/`);
const oauth = await import(pathToFileURL(require.resolve('oauth4webapi')).href);

// names of the tests lead to this machine
const lookup = (host, options, done) => (options.all
  ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4));

async function local(url, options = {}) {
  if (new URL(url).protocol === 'http:') return fetch(url, options);
  const body = options.body === undefined ? undefined : Buffer.from(await new Response(options.body).arrayBuffer());
  return new Promise((resolve, reject) => {
    const headers = Object.fromEntries(new Headers(options.headers));
    const sent = request(url, { method: options.method ?? 'GET', headers, lookup }, (got) => {
      const pieces = [];
      got.on('data', (piece) => pieces.push(piece));
      got.on('end', () => resolve(new Response(Buffer.concat(pieces), {
        status: got.statusCode, headers: got.headers,
      })));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const relaxed = { [oauth.customFetch]: local, [oauth.allowInsecureRequests]: true };
const call = { method: 'POST', body: settings.body, headers: { 'content-type': 'application/json', 'aiip-nonce': settings.nonce } };

const bare = await local(settings.url, call);
const challenge = bare.headers.get('www-authenticate');
const [, location] = /resource_metadata="([^"]+)"/.exec(challenge);

const resource = new URL(settings.resource);
const found = await oauth.resourceDiscoveryRequest(resource, relaxed);
const metadata = await oauth.processResourceDiscoveryResponse(resource, found);

const issuer = new URL(metadata.authorization_servers[0]);
const server = await oauth.processDiscoveryResponse(issuer,
  await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...relaxed }));

const client = { client_id: settings.client_id };
const { ask_for: askFor = metadata.resource } = settings;
const wanted = new URLSearchParams(askFor === null ? {} : { resource: askFor });
if (settings.scope) wanted.set('scope', settings.scope);
const DPoP = settings.dpop ? oauth.DPoP(client, await oauth.generateKeyPair('ES256')) : undefined;
const retries = { token: 0, resource: 0 };

// the library keeps a server's nonce; a request that was refused for want of it is sent once more
async function withNonce(name, send) {
  try {
    return await send();
  } catch (error) {
    if (!oauth.isDPoPNonceError(error)) throw error;
    retries[name] += 1;
    return send();
  }
}

const granted = await withNonce('token', async () => oauth.processClientCredentialsResponse(server, client,
  await oauth.clientCredentialsGrantRequest(server, client, oauth.ClientSecretBasic(settings.client_secret),
    wanted, { DPoP, ...relaxed })));

async function invoke() {
  try {
    return await withNonce('resource', () => oauth.protectedResourceRequest(granted.access_token, 'POST',
      new URL(settings.url), new Headers(call.headers), settings.body, { DPoP, ...relaxed }));
  } catch (error) {
    if (!(error instanceof oauth.WWWAuthenticateChallengeError)) throw error;
    return error.response;
  }
}

const answer = await invoke();
const again = settings.dpop ? (await invoke()).status : undefined;

process.stdout.write(JSON.stringify({
  bare: bare.status, challenge, location, metadata, token: granted.access_token,
  retries, again, status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text(),
}));
