"""`coevo plan`: what a configuration needs of devices, host, disk and network, before anything is started.

Nothing is loaded or downloaded, and torch is not imported: all of it is arithmetic on the configuration and on the
model's shape. The formulas are in docs/memory.md.
"""
