// A graph made in JavaScript from protos/ alone, and its key beside that of a StableHLO text.
// usage: node graph.js ADDRESS PROTO_DIR PROGRAM.mlir
// Prints one JSON line: both keys, and the error of a graph that is wrong.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const [address, protoDir, programPath] = process.argv.slice(2);
const header = { namespace: 'default', client_version: 'node-test/1', request_id: '' };

const f32 = (name, ...dims) => ({ name, dtype: 'DATA_TYPE_F32', dims: dims.map((size) => ({ size })) });
const node = (op, operands, result, ...attributes) => ({ op, operands, results: [result], attributes });

// tanh(x @ w + b): the program of tests/system/interop/test_other_languages.py.
const layer = {
  format: 'kcache.graph.v1',
  inputs: [f32('x', 300, 70), f32('w', 70, 50), f32('b', 50)],
  nodes: [
    node('matmul', ['x', 'w'], 'product'),
    node('add', ['product', 'b'], 'sum'),
    node('tanh', ['sum'], 'y'),
  ],
  outputs: ['y'],
};

const wrong = {
  ...layer,
  nodes: [node('softmax', ['x'], 'y', { name: 'axis', int_value: 7 })],
};

function store(client, format, body) {
  const graph = { program: { format, body } };
  return new Promise((resolve, reject) => {
    client.StoreGraph({ header, graph }, (error, reply) => (error ? reject(error) : resolve(reply.key)));
  });
}

async function main() {
  const root = new protobuf.Root();
  root.resolvePath = (_, name) => path.join(protoDir, name);
  root.loadSync('kcache/v1/graph.proto', { keepCase: true });
  const Graph = root.lookupType('kcache.v1.Graph');
  const encode = (graph) => Buffer.from(Graph.encode(Graph.fromObject(graph)).finish());

  const options = { keepCase: true, longs: Number, enums: String, defaults: true, includeDirs: [protoDir] };
  const definition = loader.loadSync('kcache/v1/kernel_cache.proto', options);
  const { KernelCache } = grpc.loadPackageDefinition(definition).kcache.v1;
  const client = new KernelCache(address, grpc.credentials.createInsecure());

  const text = await store(client, 'PROGRAM_FORMAT_STABLEHLO', fs.readFileSync(programPath));
  const graph = await store(client, 'PROGRAM_FORMAT_GRAPH', encode(layer));
  const error = await store(client, 'PROGRAM_FORMAT_GRAPH', encode(wrong)).catch((reason) => reason.details);
  console.log(JSON.stringify({ text, graph, error, body: encode(layer).toString('hex') }));
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
