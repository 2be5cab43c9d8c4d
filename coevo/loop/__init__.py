"""The alternating loop: plan, episodes, credit, updates. It reads and writes through Protocols."""
