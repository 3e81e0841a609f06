"""Publications of bundles that a test has written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from springtide.bundles.model import canonical, digest, parse
from springtide.bundles.published import PublishedBundles
from springtide.publication.folder import PublishFolder


def publish(
    folder: PublishFolder, bundles: Mapping[str, Mapping[str, Any]], key: Path | None = None, fleet: bytes = b""
) -> Path:
    """Edge -> a bundle's fields, which get the digest that they should have."""
    documents = {edge: parse(edge, canonical({**fields, "digest": digest(fields)})) for edge, fields in bundles.items()}
    return PublishedBundles(folder).publish(documents, key, fleet)
