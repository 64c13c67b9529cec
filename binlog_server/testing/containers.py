"""MariaDB in a container, on the host's network: it reaches, and is reached by, loopback."""

from __future__ import annotations

import functools
import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from binlog_server.testing import rundir
from binlog_server.testing.mariadb import MariaDB

OWNER_LABEL = "binlog-test.owner"
VERSION = "11.8"
"""Where no other one is wanted."""


def image(kind: str, version: str) -> str:
    return f"mariadb:{version}" if kind == "official" else f"binlog-test/mariadb:{version}"


def why_no_image(name: str) -> str | None:
    """None if a container of that image can be started."""
    try:
        import testcontainers  # noqa: F401
        from docker.client import DockerClient
        from docker.errors import DockerException, ImageNotFound
    except ImportError:
        return "testcontainers is not installed (pip install '.[containers]')"
    try:
        client = DockerClient.from_env(timeout=10)
        try:
            client.images.get(name)
        finally:
            client.close()
    except ImageNotFound:
        return f"no image {name}"
    except DockerException as e:
        return f"no docker engine: {str(e)[:100]}"
    return None


def remove_leftovers() -> None:
    """Containers of test processes that are no more."""
    from docker.client import DockerClient
    from docker.errors import DockerException

    try:
        client = DockerClient.from_env(timeout=10)
    except DockerException:
        return
    try:
        for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}):
            if not rundir.is_alive(container.labels[OWNER_LABEL]):
                container.remove(force=True, v=True)
    except DockerException:
        pass  # another run may be at the same
    finally:
        client.close()


_remove_leftovers_once = functools.cache(remove_leftovers)


class DockerMariaDB(MariaDB):
    """A container of one of our images, or of an official one. The data are in the container's own
    layer (or volume): they survive kill and restart, and go with the container."""

    def __init__(
        self, image_name: str, name: str, server_id: int | None = None, flags: Sequence[str] = ()
    ) -> None:
        super().__init__(name, server_id, flags)
        self.image = image_name
        self._started_with: list[str] | None = None
        self._container: Any = None

    # What the official image's entrypoint wants to know; ours does not look at it.
    ENVIRONMENT: Mapping[str, str] = {
        "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD": "1",
        "MARIADB_ROOT_HOST": "%",
        "MARIADB_DISABLE_UPGRADE_BACKUP": "1",
    }

    def _start(self) -> None:
        assert not self.alive(), f"{self} runs already"
        arguments = self._arguments()
        if self._container is None:
            self._create(arguments)
        elif arguments != self._started_with:
            raise NotImplementedError("the flags of a container cannot be changed any more")
        else:
            self._container.start()

    def _create(self, arguments: list[str]) -> None:
        from testcontainers.core.container import DockerContainer

        _remove_leftovers_once()
        container = (
            DockerContainer(self.image)
            .with_kwargs(network_mode="host", labels={OWNER_LABEL: rundir.owner()})
            .with_volume_mapping(str(self.dir), str(self.dir), "ro")
            .with_command(arguments)
        )
        for key, value in self.ENVIRONMENT.items():
            container.with_env(key, value)
        container.start()
        self._container = container.get_wrapped_container()
        self._started_with = arguments

    def alive(self) -> bool:
        if self._container is None:
            return False
        self._container.reload()
        return str(self._container.status) in ("created", "running", "paused")

    def log(self) -> str:
        if self._container is None:
            return ""
        return bytes(self._container.logs()).decode(errors="replace")

    def stop(self) -> None:
        self._container.stop(timeout=30)

    def kill(self) -> None:
        if self.alive():
            if self._container.status == "paused":
                self._container.unpause()  # the engine does not kill what is frozen
            self._container.kill()
            self._container.wait(timeout=30)

    def pause(self) -> None:
        self._container.pause()

    def resume(self) -> None:
        self._container.unpause()

    def run(self, program: str, *arguments: str) -> str:
        argv = [program, *arguments]
        code, output = self._container.exec_run(argv)
        text = bytes(output).decode(errors="replace")
        if code:
            raise subprocess.CalledProcessError(code, argv, text)
        return text

    def _discard(self) -> None:
        if self._container is not None:
            self._container.remove(force=True, v=True)

    def _content(self, path: str) -> bytes:
        chunks, _ = self._container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            file = archive.extractfile(PurePosixPath(path).name)
            assert file is not None, path
            return file.read()
