"""Checksums of trees of arrays, and records that notice when they are changed."""

import hashlib
import json
from typing import Any

import jax
import numpy as np

from ocloc_jax import distributed


def kinds(tree: Any) -> dict[str, list]:
    """Type and shape of every array of a tree, by its path."""
    return {
        name: [str(leaf.dtype), list(leaf.shape)] for name, leaf in named(tree).items()
    }


def digests(tree: Any) -> dict[str, str]:
    """SHA-256 of the content of every array of a tree, by its path."""
    host = named(distributed.to_host(tree))
    return {
        name: hashlib.sha256(np.ascontiguousarray(leaf)).hexdigest()
        for name, leaf in host.items()
    }


def named(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by their path, such as `params/encoder/view_loc`."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def seal(content: Any) -> dict[str, Any]:
    """A record, to be stored as JSON, with a checksum of its own."""
    return {"content": content, "sha256": _digest(content)}


def unseal(record: dict[str, Any]) -> Any:
    """What was sealed; raises some exception if it has changed since."""
    if _digest(record["content"]) != record["sha256"]:
        raise ValueError("the record of checksums was changed")
    return record["content"]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
