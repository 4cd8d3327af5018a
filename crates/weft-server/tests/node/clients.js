// The server as programs in JavaScript meet it, by node-postgres: what differs from what is expected ends the program with an error.

const assert = require('node:assert');
const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');

const config = { host: '127.0.0.1', port: Number(process.argv[2]), user: 'me', database: 'weft' };
const LONG = 'SELECT count(*) FROM generate_series(1, 100000000000) AS v(i) WHERE i % 7 = 3';

async function values(client) {
  await client.query('DROP TABLE IF EXISTS node_values');
  await client.query('CREATE TABLE node_values (id INTEGER PRIMARY KEY, s TEXT, at TIMESTAMP, tags TEXT[], d DECIMAL(10, 2), ok BOOLEAN, b BYTEA)');
  const row = [1, "it's", new Date(0), ['a', 'b"c'], '12.50', true, Buffer.from([0, 255])];
  const inserted = await client.query('INSERT INTO node_values VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id', row);
  assert.deepStrictEqual([inserted.rows, inserted.rowCount, inserted.command], [[{ id: 1 }], 1, 'INSERT']);
  const found = await client.query({ text: 'SELECT * FROM node_values', rowMode: 'array' });
  assert.deepStrictEqual(found.rows, [row]);
  for (const [id, rows] of [[1, [{ s: "it's" }]], [2, []]]) {
    const named = await client.query({ name: 'by-id', text: 'SELECT s FROM node_values WHERE id = $1', values: [id] });
    assert.deepStrictEqual(named.rows, rows);
  }
  const several = await client.query('SELECT 1 AS a; SELECT 2 AS a');
  assert.deepStrictEqual(several.map((result) => result.rows), [[{ a: '1' }], [{ a: '2' }]]);
}

async function transactions(client) {
  await client.query('BEGIN');
  await client.query('INSERT INTO node_values (id) VALUES (7)');
  await client.query('ROLLBACK');
  assert.deepStrictEqual((await client.query('SELECT count(*)::INT AS n FROM node_values')).rows, [{ n: 1 }]);
  await assert.rejects(client.query('SELECT * FROM nowhere'), { code: '42000', position: '15' });
  await assert.rejects(client.query('INSERT INTO node_values (id) VALUES (1)'), { code: '23505' });
  const cursor = client.query(new Cursor('SELECT value FROM generate_series(1, 1000) AS g(value)'));
  assert.strictEqual((await cursor.read(3)).length, 3);
  assert.strictEqual((await cursor.read(5000)).length, 997);
  await cursor.close();
}

async function pools() {
  const pool = new Pool({ ...config, max: 5, statement_timeout: 1000, application_name: 'pooled' });
  const asked = [...Array(50).keys()];
  const answers = await Promise.all(asked.map((number) => pool.query('SELECT $1::int AS i', [number])));
  assert.deepStrictEqual(answers.map((answer) => answer.rows[0].i), asked);
  const told = await pool.query("SELECT current_setting('application_name') AS name");
  assert.deepStrictEqual(told.rows, [{ name: 'pooled' }]);
  await assert.rejects(pool.query(LONG), { code: '57014' });
  await pool.end();
}

async function main() {
  const client = new Client(config);
  await client.connect();
  await values(client);
  await transactions(client);
  await client.end();
  await pools();
  console.log('done');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
