"""Options of all JVMs that tests start, and the archive of classes that they load.

python -m tests.kit.java          says where the archive is, or will be
python -m tests.kit.java make     makes it: a session of Spark that does a little, and ends
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 180
"""Of a test that starts a JVM: on a busy machine that alone is most of a minute."""
_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def classes() -> Path:
    """The archive for this environment's Spark. Java takes it for the very jars it was made from.

    Raises `PackageNotFoundError` without Spark.
    """
    return Path(sys.prefix) / f"spark-{importlib.metadata.version('pyspark')}.jsa"


def options() -> str:
    """For JVMs that live for seconds: no second compiler, no threads of a collector, no classes parsed again.

    Each takes a third to a half of the processor time of such a short life.
    """
    chosen = list(_OPTIONS)
    if (archive := classes()).exists():
        # What does not fit is not used, and not talked about: tests read what programs print.
        chosen += [
            f"-XX:SharedArchiveFile={archive}",
            "-Xshare:auto",
            "-Xlog:disable",
            "-Xlog:all=error",
        ]
    return " ".join(chosen)


def set_options() -> None:
    """For the JVMs that this process starts."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", options())


def make() -> None:
    """Make the archive."""
    import binlog_pipeline
    from pyspark import SparkContext

    new = classes().with_suffix(".new")
    os.environ["JDK_JAVA_OPTIONS"] = " ".join([*_OPTIONS, f"-XX:ArchiveClassesAtExit={new}"])
    spark = binlog_pipeline.session("local[1]")
    spark.range(9).groupBy("id").count().collect()
    spark.stop()
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    java.stdin.close()  # that ends it, and it writes the archive then
    java.wait()
    new.rename(classes())


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    else:
        print(classes())
