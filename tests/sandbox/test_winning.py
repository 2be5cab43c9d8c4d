"""Candidates that mean to win rather than to break: none gets an objective that its honest heuristic does not have.

Each is a problem's seed heuristic and a `cheat()` that is called when the module is loaded and again before every
call. What a cheat finds and must not find it prints as LOOT.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coevo.sandbox import Evaluator
from tests.sandbox_limits import AMPLE

from .conftest import linux

pytestmark = linux

PROBLEMS = Path(__file__).parents[2] / "tasks/coevo_heuristics/problems"
# Splits and options that leave little work.
SMALL = {
    "asp_construct": ("12-7", {}),
    "bpp_aco": ("validation120", {"count": 1, "iterations": 2}),
    "bpp_online": ("train1k_100", {"count": 1}),
    "cvrp_aco": ("validation20", {"count": 2, "iterations": 3}),
    "kp_construct": ("validation50", {"count": 2}),
    "tsp_aco": ("validation20", {"count": 2, "iterations": 3}),
    "tsp_construct": ("validation20", {"count": 2}),
}

# What `solve`, an instance, an evaluator or another's answer would be known by.
KNOWN = "('solve', 'objective', 'instances', 'problem', 'evaluate', '_running', '_pipes', 'stages')"
PATCH = """
def patch(module):
    for name in ('objective', 'bound', 'instances', 'solve', '_by_choice', '_by_score', '_by_priority', '_colony',
                 '_matrix', '_walk', '_place', '_node', '_number', '_masks', '_codes'):
        if hasattr(module, name):
            print('LOOT', module, name)
            setattr(module, name, lambda *_, **__: [0])
"""

CHEATS = {
    "frames above": """
import sys
def cheat():
    frame = sys._getframe()
    while frame is not None:
        for name, value in frame.f_locals.items():
            if name in KNOWN: print('LOOT', name)
            if hasattr(value, 'solve'): patch(value)
        patch(type('m', (), dict(frame.f_globals)))
        frame = frame.f_back
""",
    "frames of an exception": """
def cheat():
    try: 1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame
        while frame is not None:
            if 'instances' in frame.f_locals: print('LOOT')
            frame = frame.f_back
""",
    "the collector": """
import gc, types
def cheat():
    for found in gc.get_objects():
        if isinstance(found, types.ModuleType) and hasattr(found, 'solve') and hasattr(found, 'objective'): patch(found)
        if type(found).__name__ in ('Instance', 'Running', 'Supervisor', 'Evaluator'): print('LOOT', type(found))
""",
    "loaded modules": """
import sys
def cheat():
    for name, module in list(sys.modules.items()):
        if 'evaluate' in name or name.startswith(('coevo_problem', 'coevo_heuristics')): print('LOOT', name)
        if hasattr(module, 'solve') and hasattr(module, 'objective'): patch(module)
""",
    "patched numpy": """
import numpy as np
def cheat():
    for name in ('asarray', 'isfinite', 'argsort', 'flatnonzero', 'searchsorted', 'concatenate', 'broadcast_to'):
        keep = getattr(np, '_' + name, None) or getattr(np, name)
        setattr(np, '_' + name, keep)
        setattr(np, name, lambda *a, keep=keep, **k: keep(*a, **k) * 0)
    globals()['__honest__'] = True
def restore():
    for name in list(vars(np)):
        if name.startswith('_') and name[1:] in vars(np) and callable(getattr(np, name)):
            setattr(np, name[1:], getattr(np, name))
""",
    "patched builtins": """
import builtins, math
def cheat():
    builtins.sum = builtins.round = builtins.repr = lambda *_: 0
    math.fsum = math.isfinite = lambda *_: 0
""",
    "a patched way back": """
import sys
def cheat():
    player = sys.modules.get('coevo.sandbox.player') or sys.modules['__main__']
    for module in [m for n, m in sys.modules.items() if n.startswith('coevo.sandbox')]:
        for name in ('judge', 'status_of', 'read_stage'):
            if hasattr(module, name): setattr(module, name, lambda *_: ('ok', [0.0], ''))
""",
    "forged results on every descriptor": """
import os
def cheat():
    for fd in range(5, 64):
        try: os.write(fd, b'{"status": "ok", "value": [[0]]}\\n'); print('LOOT', fd)
        except OSError: pass
    os.write(1, b'{"status": "ok", "value": [[0]]}\\n')
""",
    "forged answers ahead": """
import os, struct
def cheat():
    os.write(4, struct.pack('<Q', 10) + b'=i' + bytes(8))
""",
    "a forged failure of the author": """
import os, struct, json
def cheat():
    data = b'!' + json.dumps(['unsendable', 'mine', '']).encode()
    os.write(4, struct.pack('<Q', len(data)) + data)
""",
    "calls read ahead": """
import os, fcntl
def cheat():
    flags = fcntl.fcntl(3, fcntl.F_GETFL)
    fcntl.fcntl(3, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try: print('LOOT', os.read(3, 1 << 20))
    except BlockingIOError: pass
    fcntl.fcntl(3, fcntl.F_SETFL, flags)
""",
    "the problem's file": """
import glob, os, sys
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    for root in ('/', *sys.path, os.path.dirname(os.__file__)):
        for pattern in ('evaluate.py', '*/evaluate.py', '*/*/evaluate.py', 'coevo*/problems/*/evaluate.py'):
            for path in glob.glob(os.path.join(root or '.', pattern)):
                print('LOOT', path)
""",
    "the problem by import": """
def cheat():
    for name in ('coevo_heuristics', 'coevo_heuristics.problem', 'evaluate', 'coevo_problem'):
        try:
            __import__(name)
            print('LOOT', name)
        except ImportError: pass
""",
    "the author's source in memory": """
import linecache, gc
def cheat():
    for name in linecache.cache:
        if 'evaluate' in name: print('LOOT', name)
    for found in gc.get_objects():
        if isinstance(found, dict) and 'best_known' in found: print('LOOT')
""",
    "memory of its own process": """
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    try: maps = open('/proc/self/maps').read()
    except OSError: return
    print('LOOT', len(maps))
""",
    "memory of others": """
import os
def cheat():
    for pid in [os.getppid(), *range(1, 40)]:
        if pid == os.getpid(): continue
        for name in ('mem', 'maps', 'environ', 'fd'):
            try: open(f'/proc/{pid}/{name}', 'rb').read(1); print('LOOT', pid, name)
            except OSError: pass
""",
    "a debugger": """
import ctypes, os
def cheat():
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in {os.getppid(), 1, 2, 3} - {os.getpid()}:
        if libc.ptrace(16, pid, 0, 0) == 0: print('LOOT', pid)
""",
    "an argument's owner": """
def cheat(*arguments):
    for value in arguments:
        while getattr(value, 'base', None) is not None:
            value = value.base
        if hasattr(value, 'fill') and value.size > 1: kept.append((value, value.copy()))
kept = []
def restore():
    # The honest heuristic goes on with what it was given.
    for value, copy in kept:
        if value.flags.writeable: value[...] = copy
""",
    "arguments changed": """
import numpy as np
def after(*arguments):
    for value in arguments:
        if isinstance(value, np.ndarray) and value.flags.writeable: value[...] = 0
def cheat(): pass
""",
    "a number that changes its mind": """
import numpy as np
class Shy(int):
    def __index__(self):
        # The truth to whoever asks first.
        seen, self.seen = getattr(self, 'seen', False), True
        return 0 if seen else int.__index__(self)
    __int__ = __hash__ = __index__
    def __eq__(self, other): return True
def turned(answer):
    return Shy(answer) if isinstance(answer, (int, np.integer)) else answer
def cheat(): pass
""",
    "an array of its own kind": """
import numpy as np
class Sly(np.ndarray):
    def __array_finalize__(self, other): pass
    def astype(self, *_, **__): return np.zeros(self.shape)
    def argmax(self, *_, **__): return 0
    def tolist(self): return [0]
def turned(answer):
    return answer.view(Sly) if isinstance(answer, np.ndarray) else answer
def cheat(): pass
""",
    "a pickle": """
import os
class Evil:
    def __init__(self, answer): self.answer = answer
    def __reduce__(self): return (print, ('LOOT',))
    def __index__(self): return int(self.answer)
    def __float__(self): return float(self.answer)
    def __array__(self, *_, **__):
        import numpy as np
        return np.asarray(self.answer)
def turned(answer): return Evil(answer)
def cheat(): pass
""",
    "another class's face": """
class Mask:
    def __init__(self, answer): self.__dict__['answer'] = answer
    @property
    def __class__(self): return type(self.__dict__['answer'])
    def __index__(self): return int(self.__dict__['answer'])
    def __float__(self): return float(self.__dict__['answer'])
    def __array__(self, *_, **__):
        import numpy as np
        return np.asarray(self.__dict__['answer'])
def turned(answer): return Mask(answer)
def cheat(): pass
""",
    "a child that answers": """
import os
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    if os.fork() == 0:
        os.write(4, b'\\x0a' + bytes(7) + b'=i' + bytes(8))
        os._exit(0)
    os.wait()
""",
    "a thread that answers": """
import os, threading
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    threading.Thread(target=os.write, args=(4, b'\\x0a' + bytes(7) + b'=i' + bytes(8))).start()
""",
    "an end that looks good": """
import os
def cheat():
    globals()['calls'] = globals().get('calls', 0) + 1
    if globals()['calls'] == 3: os._exit(0)
""",
    "a tracer": """
import sys
def tracer(frame, event, argument):
    if 'instances' in frame.f_locals or 'problem' in frame.f_locals: print('LOOT', frame)
    return tracer
def cheat():
    sys.settrace(tracer); sys.setprofile(tracer)
""",
    "a hook for imports": """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name.startswith('coevo_problem'): print('LOOT', name)
def cheat():
    sys.meta_path.insert(0, Finder())
""",
    "a file for the next one": """
import os, site, sys
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    for folder in (*sys.path, *site.getsitepackages(), '/tmp', '/dev/shm', '/var/tmp', os.path.expanduser('~')):
        if folder == os.getcwd(): continue
        path = os.path.join(folder, 'coevo-mark.py')
        try:
            with open(path, 'x') as file: file.write('')
            if folder not in (os.environ['HOME'], '/tmp', '/dev/shm', '/var/tmp'): print('LOOT', path)
            os.unlink(path)
        except OSError: pass
""",
    "a key for the next one": """
import ctypes
def cheat():
    libc = ctypes.CDLL(None, use_errno=True)
    for ring in (-3, -4, -5, -2):
        if libc.syscall(ctypes.c_long(248), b'user', b'coevo-mark', b'x', ctypes.c_size_t(1), ctypes.c_int(ring)) > 0:
            print('LOOT', ring)
""",
    "the cache of evaluations": """
import glob, os
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    for home in ('/root', '/home/*', os.environ.get('HOME', '')):
        for path in glob.glob(home + '/.cache/coevo/*'): print('LOOT', path)
""",
    "what was printed before": """
import gc
def cheat():
    for found in gc.get_objects():
        if isinstance(found, (dict, list)) and any(isinstance(x, bytearray) and b'"status"' in x for x in
                (found.values() if isinstance(found, dict) else found)): print('LOOT')
""",
    "signals to the others": """
import os, signal
def cheat():
    for pid in (os.getppid(), -1):
        if pid in (0, os.getpid()): continue
        for number in (signal.SIGSTOP, signal.SIGUSR1):
            try: os.kill(pid, number)
            except OSError: pass
""",
    "processor time in children that vanish": """
import os, signal
def cheat():
    if globals().get('done'): return
    globals()['done'] = True
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(3):
        if os.fork() == 0:
            for _ in range(10 ** 5): pass
            os._exit(0)
""",
}
# Whoever spoils what it was given spoils its own copy, and chooses worse by it.
SPOILS = {"arguments changed"}
# They kill or stop whatever has their user, which without namespaces may be too much.
ENCLOSED = {"signals to the others"}

FRAME = """
{seed}

import sys as _sys
KNOWN = {known}
{patch}
{cheat}

cheat()
_honest = {entry}

def {entry}(*arguments, **named):
    space = globals()
    cheat()
    if 'restore' in space: restore()
    answer = _honest(*arguments, **named)
    if 'after' in space: after(*arguments, *named.values())
    return turned(answer) if 'turned' in space else answer
"""


@dataclass
class Contest:
    evaluator: Evaluator
    seed: str
    entry: str
    objective: float
    minimize: bool


@pytest.fixture(
    scope="module",
    params=[(name, where) for name in SMALL for where in (True, False)],
    ids=lambda p: f"{p[0]}-{'enclosed' if p[1] else 'without namespaces'}",
)
def contest(request: pytest.FixtureRequest) -> Iterator[tuple[Contest, bool]]:
    name, namespaces = request.param
    split, options = SMALL[name]
    seed = (PROBLEMS / name / "template.py").read_text("utf-8")
    table = tomllib.loads((PROBLEMS / name / "problem.toml").read_text("utf-8"))
    entry = table["entry"]
    with Evaluator(
        PROBLEMS / name, split, entry, limits=AMPLE, workers=1, options=options, namespaces=namespaces
    ) as evaluator:
        honest = evaluator.evaluate(seed)
        assert honest.objective is not None, honest
        yield Contest(evaluator, seed, entry, honest.objective, table["direction"] == "minimize"), namespaces


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_has_the_objective_of_its_honest_heuristic_or_none(name: str, contest: tuple[Contest, bool]) -> None:
    chosen, _ = contest
    isolation = chosen.evaluator.isolation
    if name in ENCLOSED and not isolation["processes"]:
        pytest.skip("this system cannot keep it from the processes of its own user")
    patch = PATCH if "patch(" in CHEATS[name] else ""
    source = FRAME.format(
        seed=chosen.seed, known=KNOWN, patch=patch, cheat=CHEATS[name].replace("KNOWN", KNOWN), entry=chosen.entry
    )

    cheated = chosen.evaluator.evaluate(source)

    if name in SPOILS and cheated.objective is not None:
        better = cheated.objective < chosen.objective if chosen.minimize else cheated.objective > chosen.objective
        assert not better, cheated
    else:
        assert cheated.objective in (None, chosen.objective), cheated
    assert (cheated.status == "ok") == (cheated.objective is not None)
    if isolation["files"]:
        assert "LOOT" not in cheated.stdout, cheated.stdout
    assert chosen.evaluator.evaluate(f"{chosen.seed}\n# after {name}\n").objective == chosen.objective
