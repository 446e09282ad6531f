"""Fake machines for the readers: a directory tree in place of /, and scripts in place of tools."""

import shutil
from pathlib import Path

from manifests.machine import Machine


class FakeMachine:
    """Builds the tree; `machine()` is what a reader gets. Tools are only those that were added."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.bin = directory / "bin"
        self.root.mkdir()
        self.bin.mkdir()
        self.environ: dict[str, str] = {}

    def write(self, folder: str, **files: object) -> None:
        """Files below a folder, by name and content; `__` in a name stands for a dot."""
        for name, content in files.items():
            self.file(f"{folder}/{name.replace('__', '.')}", str(content))

    def file(self, path: str, content: str) -> None:
        """One file with a newline at its end, as the kernel writes them."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content + "\n")

    def link(self, path: str, target: str) -> None:
        """A symbolic link, as /sys uses for drivers."""
        link = self.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def tool(self, name: str, script: str) -> None:
        """A program on this machine's PATH: a shell script."""
        program = self.bin / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def prints(self, name: str, output: str) -> None:
        """A program that prints a fixed text."""
        output_file = self.bin / f"{name}.out"
        output_file.write_text(output)
        # By its full path: no program but the added ones is on this machine's PATH.
        self.tool(name, f"{shutil.which('cat')} '{output_file}'")

    def machine(self) -> Machine:
        return Machine(self.root, {"PATH": str(self.bin), **self.environ})
