// node zongji.js PORT USER PASSWORD EVENTS: reads so many events of the stream, their names as JSON. See test_connectors.py.
const [port, user, password, wanted] = process.argv.slice(2);
let ZongJi = require('@vlasky/zongji');
ZongJi = ZongJi.default || ZongJi.ZongJi || ZongJi;
const reader = new ZongJi({ host: '127.0.0.1', port: +port, user, password }), names = [];
reader.on('error', error => { console.error(error); process.exit(1); });
reader.on('binlog', event => {
  names.push(event.getTypeName());
  if (names.length === +wanted) { process.stdout.write(JSON.stringify(names)); process.exit(0); }
});
Promise.resolve(reader.start({ serverId: 556 })).catch(error => { console.error(error); process.exit(1); });
