"""For all tests: no network, and OpenMP threads that sleep while they wait, because CI shares its cores."""

import os

# Before torch is loaded. Threads that spin on a busy machine slow the engine several times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"
