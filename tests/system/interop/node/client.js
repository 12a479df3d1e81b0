// A kcache client in JavaScript, from protos/ alone: digest, compile, verify, look up, resume.
// usage: node client.js ADDRESS PROTO_DIR PROGRAM.mlir TARGET OUT_DIR [BOUND_INPUT,...]
// Writes OUT_DIR/kernel.so and prints one JSON line about what it saw.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const [address, protoDir, programPath, isa, outDir, inputs] = process.argv.slice(2);
const bound = inputs ? inputs.split(',').map(Number) : [];
const header = { namespace: 'default', client_version: 'node-test/1', request_id: '' };
const target = { cpu: { isa } };

function programDigest(format, body) {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(format.length);
  const size = Buffer.alloc(8);
  size.writeBigUInt64BE(BigInt(body.length));
  const parts = [Buffer.from('kcache.program.v1\0'), length, Buffer.from(format), size, body];
  return crypto.createHash('sha256').update(Buffer.concat(parts)).digest();
}

function checkVectors() {
  const file = path.join(protoDir, 'kcache/v1/program_digest_vectors.json');
  for (const vector of JSON.parse(fs.readFileSync(file))) {
    const digest = programDigest(vector.format, Buffer.from(vector.body_hex, 'hex')).toString('hex');
    if (digest !== vector.digest_hex) throw new Error(`digest vector ${vector.digest_hex}: got ${digest}`);
  }
}

function publicKey(raw) {
  const jwk = { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') };
  return crypto.createPublicKey({ key: jwk, format: 'jwk' });
}

function verified(domain, signed, key) {
  const message = Buffer.concat([Buffer.from(domain + '\0'), signed.payload]);
  if (!crypto.verify(null, message, key, signed.signature)) throw new Error(`${domain}: bad signature`);
  return signed.payload;
}

function unary(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

async function collect(stream) {
  const messages = [];
  for await (const message of stream) messages.push(message);
  return messages;
}

async function main() {
  checkVectors();
  const loading = { keepCase: true, longs: Number, enums: String, defaults: true, includeDirs: [protoDir] };
  const definition = loader.loadSync('kcache/v1/kernel_cache.proto', loading);
  const { KernelCache } = grpc.loadPackageDefinition(definition).kcache.v1;
  const client = new KernelCache(address, grpc.credentials.createInsecure());

  const capabilities = await unary(client, 'GetCapabilities', { header });
  const key = publicKey(capabilities.public_key);
  const body = fs.readFileSync(programPath);
  const kinds = ['ARTIFACT_KIND_SHARED_OBJECT'];
  const graph = { program: { format: 'PROGRAM_FORMAT_STABLEHLO', body } };
  const options = bound.length ? { bound } : undefined;
  const events = await collect(client.CompileKernel({ header, graph, target, options, artifact_kinds: kinds }));

  const { result } = events.find((event) => event.result);
  const chunks = events.filter((event) => event.chunk).map((event) => event.chunk);
  const shared = Buffer.concat(chunks.map((chunk) => chunk.data));
  const root = new protobuf.Root();
  root.resolvePath = (_, name) => {
    const own = path.join(protoDir, name);
    return fs.existsSync(own) ? own : null;
  };
  root.loadSync('kcache/v1/manifest.proto', { keepCase: true });
  const Manifest = root.lookupType('kcache.v1.Manifest');
  const Binding = root.lookupType('kcache.v1.Binding');
  const manifest = Manifest.decode(verified('kcache.manifest.v1', result.manifest, key));
  const binding = Binding.decode(verified('kcache.binding.v1', result.binding, key));
  const digest = programDigest('STABLEHLO', body);
  if (!digest.equals(Buffer.from(binding.program_digest))) throw new Error('binding of another program');
  const hash = crypto.createHash('sha256').update(shared).digest();
  const ref = manifest.artifacts.find((artifact) => artifact.kind === 1);
  if (!hash.equals(Buffer.from(ref.sha256))) throw new Error('the shared object is not the signed one');

  const query = { header, queries: [{ program_digest: digest }], target, options };
  const found = (await collect(client.GetKernels(query))).flatMap((reply) => reply.results);
  const offset = Math.floor(shared.length / 2);
  const rest = await collect(client.ReadArtifact({ header, sha256: hash, read_offset: offset }));
  const resumed = Buffer.concat([shared.subarray(0, offset), ...rest.map((reply) => reply.data)]);
  if (!resumed.equals(shared)) throw new Error('the resumed download differs');

  fs.writeFileSync(path.join(outDir, 'kernel.so'), shared);
  // Stages that follow one another quickly share a message, or come with the result.
  const stages = events.flatMap(({ stage, result: last }) => [
    ...(stage || last || { earlier_stages: [] }).earlier_stages,
    ...(stage ? [stage.stage] : []),
  ]);
  const { payload } = found[0].manifest;
  console.log(JSON.stringify({
    key: result.key, origin: result.origin, stages, status: found[0].status,
    same_manifest: payload.equals(result.manifest.payload), sha256: hash.toString('hex'),
    inputs: manifest.inputs.map((input) => input.dims), workspace: manifest.workspace_bytes,
    preparation: manifest.preparation && {
      arguments: manifest.preparation.arguments, bytes: Number(manifest.preparation.prepared_bytes),
      workspace: manifest.preparation.workspace_bytes,
    },
  }));
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
