"""What a run looks like to a reader; everything is derived from its folder."""
