"""The computer that coevo runs on: cores and memory, folders, network, streams, signals."""
