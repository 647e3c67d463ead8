// Verifies and signs receipts and DPoP proofs with the npm packages jose and dpop: one JSON question on standard input, one answer out.
// The packages are imported from the folder that the first argument names.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const jose = await import(pathToFileURL(`${process.argv[2]}/jose/dist/webapi/index.js`).href);
const dpop = await import(pathToFileURL(`${process.argv[2]}/dpop/build/index.js`).href);
const asked = JSON.parse(readFileSync(0, "utf8"));
const answers = {
  async verify({ token, jwks, algorithms, typ, at }) {
    const keys = jose.createLocalJWKSet(jwks);
    const options = { algorithms, typ, currentDate: new Date(at * 1000) };
    const { payload, protectedHeader } = await jose.jwtVerify(token, keys, options);
    return { payload, protectedHeader };
  },
  async sign({ claims, algorithm, typ }) {
    const { publicKey, privateKey } = await jose.generateKeyPair(algorithm, { extractable: true });
    const jwk = await jose.exportJWK(publicKey);
    const kid = await jose.calculateJwkThumbprint(jwk);
    const token = await new jose.SignJWT(claims).setProtectedHeader({ alg: algorithm, kid, typ }).sign(privateKey);
    return { token, jwk: { ...jwk, alg: algorithm, use: "sig", kid } };
  },
  // a proof, by the key that it names itself
  async embedded({ token, typ, at }) {
    const options = { typ, currentDate: new Date(at * 1000) };
    const { payload, protectedHeader } = await jose.jwtVerify(token, jose.EmbeddedJWK, options);
    return { payload, protectedHeader, thumbprint: await jose.calculateJwkThumbprint(protectedHeader.jwk) };
  },
  async proof({ algorithm, method, url, nonce, token }) {
    const keys = await dpop.generateKeyPair(algorithm);
    const proof = await dpop.generateProof(keys, url, method, nonce, token);
    return { proof, at: Date.now() / 1000, thumbprint: await dpop.calculateThumbprint(keys.publicKey) };
  },
};
try {
  console.log(JSON.stringify(await answers[asked.do](asked)));
} catch (error) {
  console.log(JSON.stringify({ refused: error.code ?? String(error) }));
}
