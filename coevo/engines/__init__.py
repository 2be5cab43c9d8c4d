"""What authors of engines share: prompts, thinking, adapted weights and their canary."""
