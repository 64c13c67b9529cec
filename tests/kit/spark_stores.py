"""Object stores by Spark's own file systems: S3 (moto), Google (fake-gcs-server), Azure (Azurite).

The connectors are of Hadoop 3.3 and of Google's 2.2.6, as packages of PyPI carry them. Spark's Hadoop is a newer one,
whose defaults they cannot read ("60s" where they want a number), so these are said as numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.moto import moto_s3
from tests.kit.object_stores import ACCOUNT, BUCKET, KEY, azurite, google
from tests.kit.programs import installed, is_missing

KINDS: Final = ("s3", "google", "azure")
_JARS: Final = "connectors/jars"
_S3: Final = {
    "fs.s3a.access.key": "key",
    "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "fs.s3a.connection.establish.timeout": "5000",
    "fs.s3a.connection.timeout": "200000",
    "fs.s3a.endpoint.region": "us-east-1",
    "fs.s3a.multipart.purge.age": "86400",
    "fs.s3a.path.style.access": "true",
    "fs.s3a.secret.key": "secret",
    "fs.s3a.threads.keepalivetime": "60",
}
_GOOGLE: Final = {
    "fs.gs.auth.null.enable": "true",
    "fs.gs.auth.service.account.enable": "false",
    "fs.gs.block.size": str(64 << 20),
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
    "fs.gs.inputstream.min.range.request.size": str(2 << 20),
    "fs.gs.outputstream.buffer.size": str(8 << 20),
    "fs.gs.project.id": "p",
    "fs.gs.rewrite.max.chunk.size": str(512 << 20),
}


@dataclass(frozen=True)
class SparkStore:
    """One that runs."""

    url: str
    """Of a bucket, as Spark knows it."""
    conf: Path
    """For SPARK_CONF_DIR."""


@contextmanager
def spark_store(kind: str, folder: Path) -> Iterator[SparkStore]:
    """One of `KINDS`. Skips the test where its parts are not, and fails in CI without the connectors."""
    jars = _jars()
    match kind:
        case "s3":
            with moto_s3(folder) as port:
                said = {**_S3, "fs.s3a.endpoint": f"http://127.0.0.1:{port}"}
                yield _configured(folder, f"s3a://{BUCKET}", jars, said)
        case "google":
            with google(folder) as url:
                said = {**_GOOGLE, "fs.gs.storage.root.url": f"{url}/"}
                yield _configured(folder, f"gs://{BUCKET}", jars, said)
        case "azure":
            with azurite(folder) as address:
                # The account is the first part of the name of a machine, which nobody knows here.
                name = f"{ACCOUNT}.blob.localhost"
                hosts = folder / "hosts"
                hosts.write_text(f"127.0.0.1 {name} localhost {os.uname().nodename}\n")
                account = f"{name}:{address.rpartition(':')[2]}"
                said = {
                    "fs.wasb.impl": "org.apache.hadoop.fs.azure.NativeAzureFileSystem",
                    f"fs.azure.account.key.{account}": KEY,
                }
                options = f"-Djdk.net.hosts.file={hosts}"
                yield _configured(folder, f"wasb://{BUCKET}@{account}", jars, said, options)


def _jars() -> list[Path]:
    folder = installed(_JARS)
    if folder is None:
        is_missing("no connectors of Spark here (tests/kit/setup.sh slow)")
    return sorted(folder.glob("*.jar"))


def _configured(
    folder: Path, url: str, jars: list[Path], said: Mapping[str, str], options: str = ""
) -> SparkStore:
    conf = folder / "spark-conf"
    conf.mkdir()
    lines = {"spark.jars": ",".join(map(str, jars)), "spark.driver.extraJavaOptions": options}
    lines.update({f"spark.hadoop.{name}": value for name, value in said.items()})
    # The file is one of Java's properties, where a colon ends a name.
    escaped = {name.replace(":", r"\:"): value for name, value in lines.items() if value}
    text = "".join(f"{name} {value}\n" for name, value in escaped.items())
    (conf / "spark-defaults.conf").write_text(text)
    return SparkStore(url, conf)
