"""The name of served weights."""

import hashlib
import json

from coevo.records import Perturbation
from coevo.weights.selection import Selection


def policy_id(digest: str, perturbation: Perturbation | None, selection: Selection) -> str:
    """The name of served weights, 32 hex digits: equal names are equal weights. Computed, never read back."""
    member = None
    if perturbation is not None and perturbation.sigma != 0:
        member = [f"{perturbation.seed:016x}", float(perturbation.sigma).hex(), perturbation.family]
    chosen = [[spec.name, float(spec.scale).hex()] for spec in selection.tensors]
    text = json.dumps(["coevo-policy-v1", digest, member, chosen], separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
