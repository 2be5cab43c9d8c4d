"""`coevo doctor`: what is installed, what can run here, and one generated token as the proof.

A check that imports or starts something heavy runs in a child process with a time limit, so that a crash or a hang
of it is a failed check and not the end of the doctor.
"""
