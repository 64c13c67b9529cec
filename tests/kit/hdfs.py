"""HDFS on this machine: a NameNode and a DataNode as processes, of Hadoop 2.7.3 (jars of pyspark 2.4, from PyPI).

WebHDFS is off: it wants a library that is not among these jars. Files go by HDFS's own protocols, as of every client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from binlog_server.testing.waiting import until
from tests.kit.programs import installed, is_missing

_JARS: Final = "hdfs/jars"
SUPERUSER: Final = "hdfs"
_OPENED: Final = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
"""Hadoop of that time looks into Java's own classes."""
_SERVER: Final = "org.apache.hadoop.hdfs.server"
_LOG: Final = """log4j.rootLogger=INFO,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%d %p %c: %m%n
"""


class Hdfs:
    """One that runs. Its folders and logs are in `folder`."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self.folder: Final = folder
        self.port: Final = _free_port()
        self._http: Final = _free_port()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.conf: Final = folder / "conf"
        """For HADOOP_CONF_DIR: it names the service `lake`, too."""
        self._classes: Final = os.pathsep.join([str(self.conf), str(folder), f"{jars}/*"])
        self.conf.mkdir(parents=True)
        for name in ("hdfs", "datanode", "static"):
            web = folder / "webapps" / name / "WEB-INF/web.xml"
            web.parent.mkdir(parents=True)
            web.write_text("<web-app></web-app>")
        (self.conf / "log4j.properties").write_text(_LOG)
        write_conf(self.conf / "core-site.xml", {"fs.defaultFS": self.url})
        nowhere = "127.0.0.1:0"
        said = {
            "dfs.namenode.name.dir": str(folder / "name"),
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.datanode.data.dir": str(folder / "data"),
            "dfs.datanode.address": nowhere,
            "dfs.datanode.http.address": nowhere,
            "dfs.datanode.ipc.address": nowhere,
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.permissions.superusergroup": SUPERUSER,
            "dfs.replication": "1",
            "dfs.webhdfs.enabled": "false",
            "dfs.ha.namenodes.lake": "a,b",
            "dfs.namenode.rpc-address.lake.a": "127.0.0.1:1",  # nobody is there
            "dfs.namenode.rpc-address.lake.b": f"127.0.0.1:{self.port}",
            "dfs.client.failover.proxy.provider.lake": (
                f"{_SERVER}.namenode.ha.ConfiguredFailoverProxyProvider"
            ),
        }
        write_conf(self.conf / "hdfs-site.xml", said)

    @property
    def url(self) -> str:
        """Of the root."""
        return f"hdfs://127.0.0.1:{self.port}"

    def run(self, name: str, *arguments: str) -> str:
        """A program of Hadoop, by its class. Returns its output."""
        done = subprocess.run(
            self._argv(name, *arguments),
            check=True,
            capture_output=True,
            text=True,
            env=_environment(),
            timeout=120,
        )
        return done.stdout

    def admin(self, *arguments: str) -> str:
        """`hdfs dfsadmin`."""
        return self.run("org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments)

    def shell(self, *arguments: str) -> str:
        """`hdfs dfs`, as the superuser."""
        return self.run("org.apache.hadoop.fs.FsShell", *arguments)

    def start(self, node: str) -> None:
        """`namenode` or `datanode`."""
        name = {"namenode": "NameNode", "datanode": "DataNode"}[node]
        with (self.folder / f"{node}.log").open("ab") as log:
            self._nodes[node] = subprocess.Popen(
                self._argv(f"{_SERVER}.{node}.{name}"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
            )

    def signal(self, node: str, number: int) -> None:
        """SIGSTOP, SIGCONT."""
        self._nodes[node].send_signal(number)

    def kill(self, node: str) -> None:
        """With SIGKILL; `start` brings it back."""
        self._nodes[node].kill()
        self._nodes.pop(node).wait()

    def wait(self) -> None:
        """Until a DataNode has reported, and files can be written."""
        until(self._is_ready, "HDFS takes files", 120)

    def _is_ready(self) -> bool:
        """It has left safe mode, and a DataNode that it knows is there: one that was killed it knows for minutes."""
        for node, process in self._nodes.items():
            assert process.poll() is None, (self.folder / f"{node}.log").read_text()[-3000:]
        try:
            found = self._bean("NameNodeInfo")
            nodes = json.loads(found["LiveNodes"]).values()
            return not found["Safemode"] and any(_answers(node["xferaddr"]) for node in nodes)
        except (OSError, ValueError):
            return False

    def _bean(self, name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._http}/jmx?qry=Hadoop:service=NameNode,name={name}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            (bean,) = json.load(answer)["beans"]
        return dict(bean)

    def close(self) -> None:
        for node in [*self._nodes]:
            with contextlib.suppress(ProcessLookupError):
                self.signal(node, signal.SIGCONT)
            self.kill(node)

    def _argv(self, name: str, *arguments: str) -> list[str]:
        small = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return ["java", *small, *_OPENED, "-cp", self._classes, name, *arguments]


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """It takes files, below /all for everybody. Skips the test where its jars are not, and fails in CI."""
    jars = installed(_JARS)
    if jars is None:
        is_missing("no jars of HDFS here (tests/kit/setup.sh slow)")
    made = Hdfs(folder / "hdfs", jars)
    try:
        made.run(f"{_SERVER}.namenode.NameNode", "-format", "-force")
        made.start("namenode")
        made.start("datanode")
        made.wait()
        made.shell("-mkdir", "-p", "/all", "/tmp")
        made.shell("-chmod", "777", "/all", "/tmp")
        yield made
    finally:
        made.close()


def write_conf(path: Path, said: Mapping[str, str]) -> None:
    """A file of Hadoop's configuration."""
    each = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in said.items()
    )
    path.write_text(f"<configuration>{''.join(each)}</configuration>")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    return {**kept, "HADOOP_USER_NAME": SUPERUSER}


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5):
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
