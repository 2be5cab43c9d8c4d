"""How parts plug in: hooks, registries, plugins and their contracts, options, consent."""
