// A program at a gateway, for tests, that knows nothing of Onym: panva's oauth4webapi. It is told the URL of a
// resource and its own id and secret. The gateway's answer to a call without a token leads to its metadata
// (RFC 9728), to the server, and to a token of the person who signs in there (code flow with PKCE), bound to a
// DPoP key; the gateway demands a nonce.
//
//   node program.mjs NODE_MODULES < settings.json
//
// Prints one line of JSON: the challenges, the metadata, and the answers to the calls with the token.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

let input = '';
for await (const piece of process.stdin) input += piece;
const settings = JSON.parse(input);
const require = createRequire(`${process.argv[2]}/`);
const oauth = await import(pathToFileURL(require.resolve('oauth4webapi')).href);
const relaxed = { [oauth.allowInsecureRequests]: true };

const [first] = settings.calls;
const bare = await fetch(first.url, { method: 'POST', body: first.body, headers: { 'content-type': 'application/json' } });
const challenges = bare.headers.get('www-authenticate');
const [, location] = /resource_metadata="([^"]+)"/.exec(challenges);

const resource = new URL(new URL(location).origin);
const metadata = await oauth.processResourceDiscoveryResponse(resource, await oauth.resourceDiscoveryRequest(resource, relaxed));
const issuer = new URL(metadata.authorization_servers[0]);
const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...relaxed }));

const client = { client_id: settings.client_id };
const redirect = 'http://127.0.0.1:4711/callback';
const verifier = oauth.generateRandomCodeVerifier();
const state = oauth.generateRandomState();
const start = new URL(server.authorization_endpoint);
start.search = new URLSearchParams({
  client_id: client.client_id, response_type: 'code', redirect_uri: redirect, state, resource: metadata.resource,
  scope: metadata.scopes_supported.join(' '), code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256', login_hint: settings.login,
}).toString();

// a browser with cookies, which stops at the redirect back
const cookies = new Map();
let url = start.href;
for (let steps = 0; !url.startsWith(redirect) && steps < 20; steps += 1) {
  const page = await fetch(url, { redirect: 'manual', headers: { cookie: [...cookies].map((pair) => pair.join('=')).join('; ') } });
  for (const line of page.headers.getSetCookie()) {
    const [name, ...value] = line.split(';')[0].split('=');
    cookies.set(name, value.join('='));
  }
  await page.arrayBuffer();
  url = new URL(page.headers.get('location'), url).href;
}

const DPoP = oauth.DPoP(client, await oauth.generateKeyPair('ES256'));
const granted = await oauth.processAuthorizationCodeResponse(server, client,
  await oauth.authorizationCodeGrantRequest(server, client, oauth.ClientSecretBasic(settings.client_secret),
    oauth.validateAuthResponse(server, client, new URL(url), state), redirect, verifier,
    { DPoP, additionalParameters: { resource: metadata.resource }, ...relaxed }));

let nonces = 0;
async function call({ url: target, body, key }) {
  const headers = new Headers({ 'content-type': 'application/json', ...(key ? { 'idempotency-key': `"${key}"` } : {}) });
  const send = () => oauth.protectedResourceRequest(granted.access_token, 'POST', new URL(target), headers, body, { DPoP, ...relaxed });
  let answer;
  try {
    answer = await send().catch((error) => {
      if (!oauth.isDPoPNonceError(error)) throw error;
      nonces += 1;
      return send();
    });
  } catch (error) {
    if (!(error instanceof oauth.WWWAuthenticateChallengeError)) throw error;
    answer = error.response;
  }
  return { status: answer.status, body: await answer.text() };
}

const answers = [];
for (const one of settings.calls) answers.push(await call(one));
process.stdout.write(JSON.stringify({ bare: bare.status, challenges, metadata, type: granted.token_type, nonces, answers }));
