"""From a configuration to a run that has ended."""
