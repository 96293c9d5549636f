"""The virtual machine of an embedded cluster: started by itself, and ahead of whatever is loaded meanwhile.

Spark's own way is a shell script that starts a virtual machine which prints the command that starts the one that is
wanted. Here that command is written down. Nothing here imports Spark or Polars: a command begins with this.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tenax.engine.scratch import MARK, Scratch
from tenax.errors import ClusterFailed

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

LOG, SPARK_HOME = "spark.log", "spark"  # in the folder of a session
WORK = "work"  # below SPARK_HOME: where executors write their logs
LOOPBACK = "127.0.0.1"
INFO = "gateway"  # the file in which the virtual machine says where it listens
POLL_S = 0.02
MEMORY = "-Xmx1g"
SCALA = "2.13"  # of the Spark that is pinned; it builds the commands of executors by it

# On machines that are as small as an embedded cluster needs, the compiler that takes longer takes more than it gives.
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUIET_OPTIONS = "-XX:-UsePerfData"  # else every virtual machine keeps a file that all users can see

# What Spark 4.3 must be allowed to do by Java 17 and later: its launcher's JavaModuleOptions.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULE_OPTIONS = (
    "-Djava.net.preferIPv6Addresses=false",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

# Executors of an embedded cluster would write a dozen lines for every task otherwise.
LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class VirtualMachine:
    """A virtual machine that waits for a Spark context.

    - It lives in a session of its own, so that signals of a terminal do not reach it, and ends when its input closes.
    - Classes that were made ready once (`archive_path`) need not be loaded and checked again, which takes most of the
      processor time of a start; Java itself sees whether they fit. With `archive` it makes them ready as it ends.
    - What it and its executors keep for a while is in its scratch folder; so are its log and SPARK_HOME if it is
      started ahead, until `keep_logs` moves what there is to be read into the folder of a session.
    """

    def __init__(self, folder: Path | None = None, archive: Path | None = None) -> None:
        self.scratch = Scratch()
        self._archive = archive
        self._folder = self.scratch.folder if folder is None else folder
        self._info = self.scratch.folder / INFO
        try:
            self.home = own_spark_home(self._folder)
            with (self._folder / LOG).open("ab") as output:
                self.process = subprocess.Popen(
                    self._command(),
                    env=self._environment(),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except BaseException:
            self.scratch.end()
            raise

    def gateway(self) -> JavaGateway:
        """The way into it, as soon as it says where it listens."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        while not self._info.is_file():  # ends: it starts, or it dies
            if self.process.poll() is not None:
                raise ClusterFailed(f"a virtual machine starts, found that it ended with {self.process.returncode}")
            time.sleep(POLL_S)
        with self._info.open("rb") as info:
            known = {"PYSPARK_GATEWAY_PORT": str(read_int(info))}
            known["PYSPARK_GATEWAY_SECRET"] = UTF8Deserializer().loads(info)
        self._info.unlink()
        os.environ.update(known)  # so Spark connects to one that is there
        try:
            gateway: JavaGateway = launch_gateway()
        finally:
            for name in known:
                del os.environ[name]
        gateway.proc = self.process
        return gateway

    def keep_logs(self, folder: Path) -> None:
        """Move what developers may want to read to where they look for it."""
        if self._folder == folder:
            return
        with suppress(OSError):
            shutil.move(self._folder / LOG, folder / LOG)
        with suppress(OSError):
            (folder / SPARK_HOME).mkdir(exist_ok=True)
            shutil.move(self.home / WORK, folder / SPARK_HOME / WORK)

    def end(self) -> None:
        """End it, whatever it does, and leave nothing of it behind."""
        self.scratch.end()
        self.process.wait()

    def _command(self) -> list[str]:
        options = f"{MEMORY} {JVM_OPTIONS} {QUIET_OPTIONS} -Djava.io.tmpdir={self.scratch.folder}".split()
        known = archive_path()
        if self._archive is not None:
            options.append(f"-XX:ArchiveClassesAtExit={self._archive}")
        elif known.is_file():
            options.append(f"-XX:SharedArchiveFile={known}")
        main = "org.apache.spark.api.python.PythonGatewayServer"
        return [java(), "-cp", class_path(), *options, self._logging, *MODULE_OPTIONS, main]

    @property
    def executor_options(self) -> str:
        """What executors are started with, beside the options of all virtual machines: the same classes, if ready.

        Spark names its own folder of classes, which is another one for each session; what comes last counts.
        """
        known = archive_path()
        options = f"{class_path()} {known}"
        if self._archive is not None or not known.is_file() or len(options.split()) > 2:  # Spark splits them at blanks
            return ""
        return f"-Djava.class.path={class_path()} -XX:SharedArchiveFile={known} {self._logging}"

    @property
    def _logging(self) -> str:
        return f"-Dlog4j2.configurationFile={self.home / 'conf' / 'log4j2.properties'}"

    def _environment(self) -> dict[str, str]:
        """What it and all below it find in their environment."""
        folder = str(self.scratch.folder)
        own = {MARK: folder, "SPARK_LOCAL_DIRS": folder, "SPARK_HOME": str(self.home), "SPARK_SCALA_VERSION": SCALA}
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        gateway = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info), "SPARK_CONNECT_MODE": "0"}
        return {"SPARK_LOCAL_IP": LOOPBACK, **os.environ, **own, **python, **gateway}


_ahead: list[VirtualMachine] = []  # none or one


def start_ahead() -> None:
    """Start the virtual machine of the next session now; without Java, leave it to the session to say so."""
    with suppress(ClusterFailed, OSError):
        if not _ahead:
            _ahead.append(VirtualMachine())


def taken_ahead() -> VirtualMachine | None:
    """The virtual machine that was started ahead, if one was and it lives; it is no longer known here."""
    while _ahead:
        machine = _ahead.pop()
        if machine.process.poll() is None:
            return machine
        machine.end()
    return None


def end_ahead() -> None:
    """End a virtual machine that was started ahead and not needed."""
    while _ahead:
        _ahead.pop().end()


def java() -> str:
    """Where Java is; Spark needs it, so say what to install instead of failing inside it."""
    home = os.environ.get("JAVA_HOME")
    own = Path(home) / "bin" / "java" if home else None
    path = str(own) if own is not None and own.exists() else shutil.which("java")
    if path is None:
        raise ClusterFailed("Spark needs Java 17 or 21, found none: install a JRE, for example openjdk-17-jre-headless")
    return path


def spark_package() -> Path:
    """Where Spark is installed, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterFailed("Tenax runs on PySpark, found none: install it with pip install tenax")
    return Path(spec.origin).resolve().parent


def class_path() -> str:
    """All that Spark consists of, always in the same order: ready classes are good for one order alone."""
    return os.pathsep.join(str(path) for path in sorted((spark_package() / "jars").glob("*.jar")))


def archive_path() -> Path:
    """Where the classes of this Spark are kept ready for this Java, for all runs of the user."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache")  # noqa: PTH111  # may be no home
    made_for = f"{class_path()}\0{Path(java()).resolve()}\0{MODULE_OPTIONS}{JVM_OPTIONS}"
    return Path(cache) / "tenax" / f"spark-{zlib.crc32(made_for.encode()):08x}.jsa"


def own_spark_home(folder: Path) -> Path:
    """A SPARK_HOME of links: local clusters write a work folder there, and the installed package must stay clean."""
    home = folder / SPARK_HOME
    home.mkdir(exist_ok=True)
    for path in spark_package().iterdir():
        link = home / path.name
        if path.name not in {WORK, "conf"} and not link.is_symlink():
            link.symlink_to(path)
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "log4j2.properties").write_text(LOGGING)
    return home
