"""A study: arms × seeds as ordinary runs, one after the other, and a table that compares them.

`plan` reads and checks the file, `conduct` runs what is missing, `results` reads the numbers of all runs from
their folders, `tables`, `figures` and `output` show them.
"""
