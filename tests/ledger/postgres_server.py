"""A PostgreSQL server of the tests' own: on a socket in a temporary directory, gone afterwards.

It can be killed in the middle of anything and started again, as a real one is.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    import psycopg

START_TIMEOUT_S = 30
# fsync off: a killed process loses nothing that was written, only a power failure would.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "deadlock_timeout": "100ms",
}


def reason_for_none() -> str | None:
    """Why no server can be started here; None where one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "the PostgreSQL driver is not installed: pip install 'k3bench[postgres]'"
    if _binary("initdb") is None or _binary("postgres") is None:
        return "no PostgreSQL server on this machine: apt-get install postgresql"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL refuses to run as root, and there is no user postgres or nobody"
    return None


def _binary(name: str) -> Path | None:
    """On the path, or where Debian keeps the newest version."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    installed = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    return max(installed, key=lambda path: float(path.parts[-3]), default=None)


def _account() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class PostgresServer:
    """Started by the constructor; ``stop`` ends it and deletes all it held."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="k3bench-pg-"))
        self._as_user: dict[str, object] = {}
        account = _account() if os.geteuid() == 0 else None
        if account is not None:
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            self._as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._migrated: str | None = None
        self._schema: list[tuple[Any, ...]] = []
        self._spare: list[str] = []
        try:
            self._run("initdb", "--pgdata", self._data, "--username", "tester", "--auth", "trust",
                      "--no-sync", "--encoding", "UTF8", "--locale", "C.UTF-8")  # fmt: skip
            self.start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str) -> str:
        """The ledger URL of a database of this server."""
        return f"postgresql://tester@/{database}?host={self.directory}"

    def connect(self, database: str) -> "psycopg.Connection[tuple[Any, ...]]":
        """A plain connection of the driver's, each statement its own transaction."""
        import psycopg

        return psycopg.connect(
            host=str(self.directory), user="tester", dbname=database, autocommit=True
        )

    @property
    def running(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None

    def create_database(self, template: str = "template1") -> str:
        """A new database, empty or a copy; returns its name."""
        name = f"ledger_{uuid.uuid4().hex[:12]}"
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def borrow(self) -> str:
        """A database with an empty ledger: one that was given back, or a copy of the first."""
        from k3bench.ledger import open_ledger

        if self._migrated is None:
            self._migrated = self.create_database()
            open_ledger(self.url(self._migrated)).close()
            self._schema = self._schema_of(self._migrated)
        return self._spare.pop() if self._spare else self.create_database(self._migrated)

    def give_back(self, name: str) -> None:
        """Emptied for the next test, or dropped where the schema was changed.

        A copy is 8 MB of files, so two hundred tests should not make one each.
        """
        with self.connect("postgres") as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(others, [name])
        if self._schema_of(name) == self._schema:
            with self.connect(name) as connection:
                connection.execute("TRUNCATE samples, result, run, workload, manifest")
            self._spare.append(name)
        else:
            with self.connect("postgres") as connection:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _schema_of(self, name: str) -> list[tuple[Any, ...]]:
        with self.connect(name) as connection:
            return connection.execute(
                """SELECT 'version', version_num FROM ledger_version
                UNION SELECT conrelid::regclass::text, conname FROM pg_constraint
                UNION SELECT tablename, indexdef FROM pg_indexes
                UNION SELECT table_name, column_name FROM information_schema.columns
                WHERE table_schema = 'public' ORDER BY 1, 2"""
            ).fetchall()

    def start(self) -> None:
        """Start, or start again; returns once it answers."""
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_binary("postgres")), "-D", str(self._data), "-k", str(self.directory),
                 *settings],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                **self._as_user,  # type: ignore[call-overload]
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    "PostgreSQL did not start: " + (self.directory / "server.log").read_text()
                )
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL for the server and every process of it, as when memory runs out."""
        assert self._process is not None
        postmaster = psutil.Process(self._process.pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        self._process = None
        psutil.wait_procs(processes, timeout=START_TIMEOUT_S)

    def stop(self) -> None:
        """End it at once and delete its data."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, name: str, *arguments: object) -> None:
        completed = subprocess.run(
            [str(_binary(name)), *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=self.directory,
            **self._as_user,  # type: ignore[call-overload]
        )  # fmt: skip
        if completed.returncode != 0:
            raise RuntimeError(f"{name} failed: {completed.stderr or completed.stdout}")
