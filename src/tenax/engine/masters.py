"""External Spark masters: one that is wrong or does not answer is refused before Spark waits for it for minutes."""

from __future__ import annotations

import queue
import re
import socket
import threading
import time

from tenax.errors import ClusterFailed, InvalidRequest

ANSWER_S = 1.5  # for all addresses together, the look-up of their names included
STANDALONE = re.compile(r"spark://([^,/\s:]+:\d+(?:,[^,/\s:]+:\d+)*)")
OTHERS = ("local-cluster[", "yarn", "k8s://")


def check_master(url: str) -> None:
    """Refuse an address that is none, and a standalone master that does not answer."""
    match = STANDALONE.fullmatch(url)
    if match is None:
        if url.startswith(OTHERS):
            return  # Spark finds these by its own settings
        raise InvalidRequest(f"--master is the address of a Spark master, found {url!r}: write spark://host:7077")
    refusals = _refusals(match[1].split(","))
    if refusals:
        raise ClusterFailed(
            f"the Spark master {url} answers, found that it does not ({'; '.join(refusals)}): "
            "start it, or correct --master"
        )


def _refusals(addresses: list[str]) -> list[str]:
    """Why none of the addresses can be connected to; nothing if one can. All are tried at once."""
    answers: queue.Queue[tuple[str, str]] = queue.Queue()
    for address in addresses:
        # daemons: the look-up of a name cannot be cut short
        threading.Thread(target=lambda tried=address: answers.put((tried, _refusal(tried))), daemon=True).start()
    deadline = time.monotonic() + ANSWER_S
    refusals = dict.fromkeys(addresses, f"no answer within {ANSWER_S:g} s")
    for _ in addresses:
        try:
            address, refusal = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if not refusal:
            return []
        refusals[address] = refusal
    return [f"{address}: {why}" for address, why in refusals.items()]


def _refusal(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), ANSWER_S):
            return ""
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
