// node looks.js mariadb|mysql2 PORT USER PASSWORD TLS: what it sees, as JSON. See test_connectors.py.
const [name, port, user, password, tls] = process.argv.slice(2);
const options = { host: '127.0.0.1', port: +port, user, password, database: 'app' };
if (tls) options.ssl = { rejectUnauthorized: false };
const insert = 'INSERT INTO t (id, v) VALUES (?, ?)';
(async () => {
  const mysql2 = name === 'mysql2', client = require(mysql2 ? 'mysql2/promise' : 'mariadb');
  const db = await client.createConnection(options);
  const rows = async (sql, values) => { const found = await db.execute(sql, values); return mysql2 ? found[0] : found; };
  const first = row => String(Object.values(row)[0]);
  const seen = { cipher: Object.values((await rows("SHOW STATUS LIKE 'Ssl_cipher'"))[0])[1] };
  seen.databases = (await rows('SHOW DATABASES')).map(first);
  seen.tables = (await rows('SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?', ['information_schema'])).length;
  seen.values = Object.values((await rows('SELECT ? AS a, ? AS b', [7, "it's"]))[0]).map(String);
  await rows('SELECT nonsense').catch(error => { seen.error = error.errno; });
  await db.beginTransaction();
  if (mysql2) { await rows(insert, [7, "it's"]); await rows(insert, [8, null]); }
  else await db.batch(insert, [[7, "it's"], [8, null]]);
  await db.commit();
  await db.ping();
  await db.changeUser(options);
  await db.end();
  process.stdout.write(JSON.stringify(seen));
})().catch(error => { console.error(error); process.exit(1); });
