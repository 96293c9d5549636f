"""Spark masters of others: what is wrong with one is said before Spark starts, which would wait for minutes."""

from __future__ import annotations

import re
import socket

from tenax.engine.errors import ClusterFailed
from tenax.errors import InvalidRequest

CONNECT_S = 1.0  # for each address
STANDALONE = re.compile(r"spark://([^,/\s:]+:\d+(?:,[^,/\s:]+:\d+)*)")
OTHERS = ("local-cluster[", "yarn", "k8s://")


def check_master(url: str) -> None:
    """Refuse an address that is none, and a standalone master that does not answer."""
    match = STANDALONE.fullmatch(url)
    if match is None:
        if url.startswith(OTHERS):
            return  # Spark finds these by its own settings
        raise InvalidRequest(f"--master is the address of a Spark master, found {url!r}: write spark://host:7077")
    refusals = []
    for address in match[1].split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), CONNECT_S):
                return
        except (OSError, OverflowError) as error:
            refusals.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise ClusterFailed(
        f"the Spark master {url} answers, found that it does not ({'; '.join(refusals)}): start it, or correct --master"
    )
