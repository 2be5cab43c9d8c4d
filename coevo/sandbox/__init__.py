"""Runs code that a language model wrote, and trusts nothing that it says.

Covered: a candidate cannot reach `solve` or the instances, which are in another process; every process that it starts
ends with it, and with the run; CPU time, memory, output, files and processes are limited; nothing of the run is
inherited; it has no network, sees no file but the interpreter and what is installed, and is refused the system calls
that no heuristic needs; its solution is checked, and the objective computed, in a third process that the run keeps for
the problem's own code, which may be wrong but is not hostile.

Weaker, as `Sandbox.isolation` tells:

- Without root and user namespaces: the run's own user, with network and files, which has to be asked for by
  `COEVO_WEAK_SANDBOX=1`; one candidate at a time; all processes of that user count against the limit, so that a fork
  or a thread may be refused.
- As root without namespaces (the default in a container): another user for each candidate, so the interpreter
  must be readable for all; readable files are within reach, the problem's too.
- On macOS: as the latter two, and without root what leaves its session (`setsid`) outlives the candidate; CPU time
  is that of each process, in whole seconds, and the limit on memory may have no effect.

Not covered anywhere: faults of the kernel in the calls that are left; processor time of children too short to be seen
that nobody waits for; numbers that a candidate draws from the system's entropy, which differ each time.
"""

from coevo.sandbox.author import Author, AuthorError
from coevo.sandbox.client import Outcome, Sandbox
from coevo.sandbox.limits import Limits
from coevo.sandbox.problem import Problem, load_problem
from coevo.sandbox.racing import Bar
from coevo.sandbox.scoring import Evaluation, Evaluator

__all__ = [
    "PROTOCOL",
    "Author",
    "AuthorError",
    "Bar",
    "Evaluation",
    "Evaluator",
    "Limits",
    "Outcome",
    "Problem",
    "Sandbox",
    "load_problem",
]

PROTOCOL = 2
"""Raised when the same source may end otherwise than before; what was kept of evaluations is then of no use."""
