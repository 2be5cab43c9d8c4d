"""A study: arms × seeds as ordinary runs, one after the other, and a table that compares them.

`entries` says what a study's file holds, `plan` makes runs of it, `conduct` runs what is missing, `results` reads the
numbers of all runs from their folders, `comparison` compares them, `tables`, `figures` and `output` show them.
"""
