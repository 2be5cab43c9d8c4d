"""Model folders: the catalogue of names, and the export of weights."""
