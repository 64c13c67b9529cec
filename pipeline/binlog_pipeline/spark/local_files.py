"""Files that Spark's JVM writes on this machine, without a process for each.

Hadoop sets the mode of each file that it makes. Without its library in C, which PySpark does not bring, it starts
`chmod` for that: for a file and for the `.crc` beside it, of a micro-batch four times. Java can do it by a call.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

_NAME: Final = "binlog_pipeline.LocalFiles"
# What was there in all else: Hadoop's own class, or Hive's. Of folders `chmod` knows more: it leaves them set-group-ID.
_SOURCE: Final = """
package binlog_pipeline;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends %s {
    public LocalFiles() {
        this.fs = new Raw();
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission mode) throws IOException {
            File file = pathToFile(path);
            if (file.isFile() && !mode.getStickyBit()) {
                Files.setPosixFilePermissions(
                    file.toPath(), PosixFilePermissions.fromString(mode.toString()));
            } else {
                super.setPermission(path, mode);
            }
        }
    }
}
"""
_RAW: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
_CHOICE: Final = "fs.file.impl"


def write_without_processes(jvm: Any, settings: Any) -> None:
    """Let a JVM that nobody uses yet set the modes of local files by itself, unless something else writes them.

    What is made here is known to this JVM alone, as the one that Hadoop keeps for all who ask for local files: its name
    goes nowhere, neither to executors nor into `settings`, which are Hadoop's. Where something is missing for that all
    stays as it was.
    """
    with contextlib.suppress(Py4JError, TypeError):  # TypeError: of a class that there is not
        hadoop = jvm.org.apache.hadoop
        own = hadoop.conf.Configuration(settings)
        place = jvm.java.net.URI("file:///")
        files = hadoop.fs.FileSystem.get(place, own)
        if (
            hadoop.util.NativeCodeLoader.isNativeCodeLoaded()
            or files.getRaw().getClass().getName() != _RAW
        ):
            return
        known = own.getClassLoader()
        compiler = jvm.org.codehaus.janino.SimpleCompiler()  # Spark's
        compiler.setParentClassLoader(known)
        compiler.cook(_SOURCE % files.getClass().getCanonicalName())
        own.setClassLoader(compiler.getClassLoader())
        own.set(_CHOICE, _NAME)
        files.close()  # Hadoop forgets it
        hadoop.fs.FileSystem.get(place, own)
        own.unset(_CHOICE)  # it keeps these settings, which somebody may copy
        own.setClassLoader(known)
