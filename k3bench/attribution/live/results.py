"""The result file of a study: every sample of every point, written whole after each, resumable."""

import json
import os
from pathlib import Path
from typing import Any

from k3bench.attribution.live.study import PointResult, ServerConfig
from k3bench.journal import write_durably

_FORMAT = "k3bench-study-1"


class ResultsError(ValueError):
    """The result file cannot be used for this study; the message says why."""


class StudyResults:
    """Points of one configuration in one JSON file; what is in it need not be measured again."""

    def __init__(self, path: Path, config: ServerConfig, document: dict[str, Any]) -> None:
        self.path = path
        self._config = config
        self._document = document

    @classmethod
    def open(cls, path: Path, config: ServerConfig) -> "StudyResults":
        """The file at ``path``, or a new one. Raises ResultsError if it belongs to another study.

        A file is only ever replaced whole, so one that does not parse was not written by us.
        """
        if not os.access(path.parent, os.W_OK):
            raise ResultsError(f"{path.parent}: no directory to write to: make it first")
        fresh = {"format": _FORMAT, "config": config.name, "kind": "measured", "server": {}}
        if not path.exists():
            return cls(path, config, {**fresh, "points": []})
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ResultsError(f"{path}: cannot be read ({error}): name another file") from error
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ResultsError(f"{path}: holds no study of format {_FORMAT}: name another file")
        if document.get("config") != config.name:
            raise ResultsError(
                f"{path}: holds configuration {document.get('config')}, not {config.name}: "
                "one file for each"
            )
        points = document.get("points")
        if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
            raise ResultsError(f"{path}: points: expected an array of objects")
        return cls(path, config, document)

    def has(self, measurement: str, input_tokens: int) -> bool:
        """Whether that point is there already."""
        return any(
            point.get("measurement") == measurement and point.get("input_tokens") == input_tokens
            for point in self._document["points"]
        )

    def describe_server(self, server: dict[str, Any]) -> None:
        """Note what the server says of itself. Raises ResultsError if an earlier part was taken on
        another one: its points and these belong in two files."""
        earlier = self._document["server"]
        changed = [key for key in server if key in earlier and earlier[key] != server[key]]
        if changed and self._document["points"]:
            raise ResultsError(
                f"{self.path}: {changed[0]} was {earlier[changed[0]]}, this server says "
                f"{server[changed[0]]}: resume on the same server, or name another file"
            )
        self._document["server"] = server

    def add(self, point: PointResult) -> None:
        """Add a point and write the file, durably and whole."""
        self._document["points"].append(point.to_json())
        write_durably(self.path, json.dumps(self._document, indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        return self._document
