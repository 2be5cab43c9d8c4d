"""Tuning: a few probe batches that measure whether ES can learn from members of a given sigma.

`asking` asks the same questions of members of several sizes, `statistics` splits the variance of their credits,
`proposal` chooses, `conduct` puts it together, `tables` shows it. Nothing is updated and nothing is written.
"""
