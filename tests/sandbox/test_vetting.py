"""Vetted sources may share a process with `solve`: nothing in them can reach it, and their outcome is the same."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coevo.sandbox import Sandbox
from coevo.sandbox.allowances import NUMPY, TYPED
from coevo.sandbox.vetting import namespace, vetted
from tests.sandbox_limits import AMPLE

PROBLEMS = Path(__file__).parents[2] / "tasks/coevo_heuristics/problems"
TEMPLATES = sorted(PROBLEMS.glob("*/template*.py"))

REACHING = {
    "a frame": "import sys\ndef f(n): return sys._getframe(1).f_locals",
    "a frame by a traceback": "def f(n):\n    try: 1 / 0\n    except Exception as e: return e.__traceback__.tb_frame.f_back",  # noqa: E501
    "a frame by a traceback's name": "def f(n):\n    try: 1 / 0\n    except Exception as e: return e.tb_frame",
    "a frame of a generator": "def f(n):\n    g = (x for x in [1])\n    return g.gi_frame.f_back",
    "a generator": "def f(n):\n    yield 1",
    "a coroutine": "async def f(n): return 1",
    "globals": "def f(n): return globals()",
    "the globals of a function": "def f(n): return f.__globals__",
    "the builtins": "def f(n): return __builtins__",
    "an import by name": "def f(n): return __import__('os')",
    "a module": "import os\ndef f(n): return 1",
    "a module of a package": "import numpy.lib\ndef f(n): return 1",
    "everything of a module": "from numpy import *\ndef f(n): return 1",
    "a module beside": "from . import evaluate\ndef f(n): return 1",
    "ctypes by numpy": "import numpy as np\ndef f(n): return np.ctypeslib",
    "memory by an address": "import numpy as np\ndef f(n): return np.zeros(1).ctypes.data",
    "memory by strides": "import numpy as np\ndef f(n): return np.lib.stride_tricks.as_strided(np.zeros(1), (9999,))",
    "memory by an array interface": "import numpy as np\ndef f(n): return np.asarray(n).__array_interface__",
    "memory that others freed": "import numpy as np\ndef f(n): return np.empty(1000)",
    "memory that others freed, where nothing is computed": "import numpy as np\ndef f(n): return np.sqrt(np.zeros(99), where=False)",  # noqa: E501
    "the same by stars": "import numpy as np\ndef f(n): return np.sqrt(np.zeros(99), **{'where': False})",
    "memory that others freed, as an array": "import numpy as np\ndef f(n): return np.ndarray((1000,))",
    "the base of an array": "import numpy as np\ndef f(n): return n.base",
    "a view of other type": "import numpy as np\ndef f(n): return np.zeros(9).view('O')",
    "an attribute by text": "def f(n): return getattr(f, '__globals__')",
    "an attribute by a format": "def f(n): return '{0.__globals__}'.format(f)",
    "an attribute by a format map": "def f(n): return '{f.__globals__}'.format_map({'f': f})",
    "an attribute by a pattern": "def f(n):\n    match f:\n        case object(__globals__=g): return g",
    "an attribute by a pattern with a plain name": "def f(n):\n    match n:\n        case object(real=g): return g",
    "a class": "class A: pass\ndef f(n): return 1",
    "a class by type": "def f(n): return type('A', (), {})",
    "the subclasses of object": "def f(n): return ().__class__.__base__.__subclasses__()",
    "a decorator": "@print\ndef f(n): return 1",
    "an attribute of numpy changed": "import numpy as np\nnp.argmin = None\ndef f(n): return 1",
    "an attribute of numpy deleted": "import numpy as np\ndel np.argmin\ndef f(n): return 1",
    "an attribute of numpy changed in a loop": "import numpy as np\nfor np.argmin in [None]: pass\ndef f(n): return 1",
    "errors of numpy changed": "import numpy as np\nnp.seterr(all='raise')\ndef f(n): return 1",
    "a context": "import numpy as np\ndef f(n):\n    with np.errstate(all='raise'): return 1",
    "random numbers of numpy": "import numpy as np\ndef f(n): return np.random.rand()",
    "random numbers": "import random\ndef f(n): return random.random()",
    "a file": "def f(n): return open('x')",
    "a text by a keyword of dict": "def f(n): return list(dict(axis=n))[0]",
    "a text by a keyword of update": "def f(n):\n    d = {}\n    d.update(axis=n)\n    return list(d)[0]",
    "a text by a keyword of its own function": "def g(**k): return list(k)\ndef f(n): return g(object=n)[0]",
    "a text by a keyword of its own lambda": "def f(n): return sorted([1], key=lambda x, **k: x)",
    "a function that is kept": "def f(n): return dict(key=lambda x: x)",
    "a type that is kept": "def f(n): return {}.get(1, int)",
    "a type in a list": "import numpy as np\ndef f(n):\n    a = []\n    a.append(np.float64)\n    return a[0].real",
    "a type in an array": "import numpy as np\ndef f(n): return np.append(n, int)",
    "a text as a type": "import numpy as np\ndef f(n): return np.zeros(3, n)",
    "a text as a type, imported": "from numpy import zeros as z\ndef f(n): return z(3, n)",
    "a text as a type of a method": "def f(n): return n.sum(0, n)",
    "a text as an order": "def f(n): return n.copy(n)",
    "arguments by a star": "import numpy as np\ndef f(n): return np.zeros(*n)",
    "memory to write to": "import numpy as np\ndef f(n): return np.add(n, n, n)",
    "where to write": "import numpy as np\ndef f(n): return np.sum(n, 0, None, None, False)",
    "a function of numpy as a method": "def f(n): return n.zeros(1)",
    "code of its own": "def f(n): return eval('1')",
    "code by exec": "exec('x = 1')\ndef f(n): return 1",
    "the collector": "import gc\ndef f(n): return gc.get_objects()",
    "a builtin as a name elsewhere": "def g():\n    open = 1\ndef f(n): return open('x')",
    "an annotation that is evaluated": "def f(n: __import__('os')): return 1",
    "an annotation with a call": "def f(n: print(1)): return 1",
    "a name with two underscores": "__x = 1\ndef f(n): return 1",
    "a parameter with two underscores": "def f(__n): return 1",
    "the stand-ins": "def f(n): return __modules",
    "an attribute of a function": "def f(n): return 1\nf.cache = {}",
    "a type's method resolution": "def f(n): return int.mro()",
    "super": "def f(n): return super()",
    "vars": "def f(n): return vars()",
    "an attribute getter": "from operator import attrgetter\ndef f(n): return attrgetter('__globals__')(f)",
    "a cache of functions": "from functools import lru_cache\ndef f(n): return 1",
    "the module of a stand-in": "import heapq\ndef f(n): return heapq.__dict__",
    "an import inside": "def f(n):\n    import sys\n    return 1",
    "a copy with a memory": "import numpy as np, copy\ndef f(n): return copy.deepcopy(np, {})",
    "a copy by another way": "import copy\ndef f(n): return list(map(copy.deepcopy, [n], [{}]))",
    "a structured array": "import numpy as np\ndef f(n): return np.zeros(1, {'names': ['a'], 'formats': ['O'], 'offsets': [0]})",  # noqa: E501
    "a structured array by text": "import numpy as np\ndef f(n): return np.zeros(1, 'i8,O')",
    "a type of arrays by a name": "import numpy as np\ndef f(n):\n    kind = 'O'\n    return np.zeros(1, kind)",
    "a type of arrays by a method": "import numpy as np\ndef f(n): return np.zeros(1).astype('i8,O')",
    "a type of arrays by a star": "import numpy as np\ndef f(n): return np.zeros(*[1, 'O'])",
    "a function as a value": "import numpy as np\ndef f(n):\n    g = np.sqrt\n    return g(n)",
    "a function handed on": "import numpy as np\ndef f(n): return list(map(np.sqrt, [n]))",
    "an own function as a value": "def g(): return 1\ndef f(n): return [g]",
    "a method as a value": "import numpy as np\ndef f(n): return np.zeros(1).astype",
    "a module as a value": "import numpy as np\ndef f(n): return [np]",
    "a type as a value": "def f(n): return [int]",
    "a lambda": "def f(n):\n    g = lambda x: x\n    return g(n)",
    "an exception as a value": "def f(n):\n    try: 1 / n\n    except ZeroDivisionError as e: return e",
    "an exception as a value that is made": "def f(n): return ValueError(n)",
    "a function of numpy that is named as a value": "import numpy as np\ndef f(n): return [np.shape]",
    "an exception class as a value": "def f(n): return ValueError",
    "a text": "def f(n): return 'x'",
    "a text in a list": "def f(n): return ['x']",
    "a text with a value": "def f(n): return f'{f}'",
    "a text of something": "def f(n): return str(f)",
    "a text that is read": "X = 'O'\ndef f(n): return X",
    "an argument that receives": "import numpy as np\ndef f(n): return np.add(n, n, out=np.zeros(1))",
    "what is printed": "def f(n): print(n)",
    "a module's name used twice": "import numpy as np\nnp = 3\ndef f(n): return np.x",
    "a builtin under a name of its own": "def f(sum): return sum",
    "an addition of many terms": "x = " + "1 + " * 600 + "1",
    "a chain of conditions": "def f(n):\n    if n == 0: return 0\n"
    + "".join(f"    elif n == {k}: return {k}\n" for k in range(600)),
    "a null byte": "def f(n): return 1\0",
    "no Python": "def f(n: return",
    "no UTF-8": "\ud800",
    "a length beyond reason": "x = 1\n" * 20_000,
    "a nesting beyond reason": "x = " + "(" * 5000 + ")" * 5000,
}

SOURCES = {
    "arithmetic": "def f(n): return (n + 1) ** 2 // 3",
    "a loop and a condition": "def f(n):\n    total = 0\n    for i in range(n + 3):\n        total += i if i % 2 else -i\n    return total",  # noqa: E501
    "an exception": "def f(n):\n    return 1 / n",
    "a deep exception": "def g(x):\n    return [][x]\n\ndef f(n):\n    return g(n)",
    "an exception of its own words": "def f(n): raise ValueError('so\\nnot')",
    "an exception while it loads": "x = [][1]\ndef f(n): return 1",
    "a caught exception": "def f(n):\n    try:\n        return 1 / n\n    except (ZeroDivisionError, KeyError):\n        return -1",  # noqa: E501
    "no function": "f = 3",
    "another function": "def g(n): return 1",
    "a syntax error of the compiler": "def f(n):\n    return 1\nreturn 2",
    "numpy": "import numpy as np\ndef f(n): return np.arange(n + 2) * np.float32(0.5)",
    "numpy without an alias": "import numpy\nfrom numpy import sqrt\ndef f(n): return numpy.float64(sqrt(n))",
    "types of arrays": "import numpy as np\ndef f(n): return [np.zeros(2, dtype=float), np.ones(2, np.int64).astype(float), np.array([1], int)]",  # noqa: E501
    "methods of arrays": "import numpy as np\ndef f(n):\n    x = np.arange(6).reshape(2, 3)\n"
    "    return [x.sum(axis=1), x.T.shape, x.argsort(axis=1), x.tolist(), x.max(axis=0, keepdims=True)]",
    "containers": "def f(n):\n    d = {}\n    d.setdefault(1, []).append(n)\n    s = {3, 1}\n    s.add(n)\n"
    "    q = sorted(s, key=lambda x: -x)\n    q.insert(0, 5)\n    return [q, list(d.items()), max(q, default=0)]",
    "itertools": "from itertools import pairwise, chain\ndef f(n): return [a - b for a, b in pairwise(chain([n], [3, 5]))]",  # noqa: E501
    "math inside": "def f(n):\n    import math\n    return math.floor(math.pi * n)",
    "annotations": "from __future__ import annotations\nfrom typing import Optional\nimport numpy as np\n"
    "def f(n: Optional[int] = None, *, m: np.ndarray = None) -> tuple[int, ...]:\n    x: int = 3\n"
    "    return (x, n)",
    "an infinite answer": "import math\ndef f(n): return math.inf",
    "an answer without end": "def f(n):\n    x = []\n    x.append(x)\n    return x",
    "a set for an answer": "def f(n): return {n}",
    "a generator for an answer": "def f(n): return (i for i in [n])",
    "a floating point error": "def f(n): raise FloatingPointError('no')",
    "an exception without words": "def f(n): raise ValueError",
    "much memory": "def f(n): return len([0] * 10 ** 10)",
    "endless recursion": "def f(n): return f(n)",
    "state between calls": "seen = []\ndef f(n):\n    seen.append(n)\n    return list(seen)",
    "global": "count = 0\ndef f(n):\n    global count\n    count += 1\n    return count",
    "a docstring and a mark": '"""Words."""\nHOLE = \'expression\'\ndef f(n):\n    """More."""\n    return n',
    "a number beyond floats": "def f(n): return 10 ** 400",
    "a deep expression": "def f(n): return " + "-" * 40 + "n",
    "own functions with names": "def g(x, *more, by=2): return x * by + len(more)\ndef f(n): return g(n, by=3)",
    "infinities by a word": "def f(n): return min(float('inf'), n)",
    "stars": "def g(*x): return sum(x)\ndef f(n):\n    a, *b = [1, 2, n]\n    return g(*b, a)",
}

TOY = """
import numpy as np

def instances(split):
    return [{"n": n} for n in range(3)]

def solve(function, instance):
    return function(instance["n"])

def objective(solution, instance):
    return 0.0
"""


@pytest.mark.parametrize("name", REACHING)
def test_a_source_that_could_reach_something_is_not_vetted(name: str) -> None:
    assert vetted(REACHING[name].encode(errors="surrogatepass")) is None


@pytest.mark.parametrize("name", NUMPY)
def test_no_argument_by_position_is_a_type_an_order_or_memory(name: str) -> None:
    function = getattr(np, name, np.sum)
    if isinstance(function, np.ufunc):
        assert function.nin == NUMPY[name]
        return
    kept: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY):
            break
        kept.append(parameter.name)
    assert not {"dtype", "out", "where", "order", "casting", "subok", "like", "device", "mode"} & {*kept[: NUMPY[name]]}
    assert (kept[NUMPY[name] : NUMPY[name] + 1] == ["dtype"]) == (name in TYPED)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_template_is_vetted(template: Path) -> None:
    assert vetted(template.read_bytes()) is not None


def test_nothing_but_functions_that_compute_is_within_reach_of_a_vetted_source() -> None:
    known = namespace()["__builtins__"]
    reach = {name: value for name, value in known.items() if not name.startswith("__")}
    for module in known["__modules"].values():
        reach |= {name: value for name, value in vars(module).items() if name != "linalg"}
    allowed = (type, type(len), type(np.sin), type(np.mean), type(vetted), float, type(None))
    assert {name for name, value in reach.items() if not isinstance(value, allowed)} == set()
    dangerous = (
        "getattr setattr eval exec open compile object vars globals locals input super memoryview frompyfunc map "
    )
    dangerous += "empty empty_like print repr str format chr type isinstance iter next filter deepcopy apply_along_axis"
    assert not reach.keys() & set(dangerous.split())


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("problem") / "evaluate.py"
    file.write_text(TOY)
    for folder in (file.parent, file.parent.parent):
        folder.chmod(0o755)
    with Sandbox(file, "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", SOURCES)
def test_a_vetted_source_ends_as_it_does_in_a_process_of_its_own(
    name: str, sandboxes: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = sandboxes.run(SOURCES[name])
    monkeypatch.setattr("coevo.sandbox.vetting.vetted", lambda _: None)
    apart = sandboxes.run(SOURCES[name])

    for field in ("status", "value", "message", "stdout"):
        assert getattr(near, field) == getattr(apart, field), (near, apart)


@pytest.mark.parametrize("name", SOURCES)
def test_these_sources_are_vetted(name: str) -> None:
    assert vetted(SOURCES[name].encode()) is not None


FAILING = {
    "a name made local by its annotation": "x = 1\ndef f(n):\n    x: int\n    return x",
    "an annotation before its import": "def f(n: np.ndarray): return 1\nimport numpy as np",
    "an import that may not happen": "if 0:\n    import numpy as np\ndef f(n: np.ndarray): return 1",
    "a type of another module": "import math\ndef f(n: math.ndarray): return 1",
    "a name that is not there": "from collections.abc import Optional\ndef f(n: Optional[int]): return 1",
    "two optional types": "from typing import Optional\ndef f(n: Optional[int, int]): return 1",
    "half a dictionary": "from typing import Dict\ndef f(n: Dict[int]): return 1",
    "brackets behind Any": "from typing import Any\ndef f(n: Any[int]): return 1",
    "no type in a union": "from typing import Union\ndef f(n: Union[()]): return 1",
    "a text that is no type": "from typing import List\ndef f(n: List['1 +']): return 1",
    "a deleted module": "import numpy as np\ndel np\ndef f(n: np.ndarray): return 1",
}


def run(source):
    """What Python itself makes of a source; this file's own `from __future__` is none of its."""
    space = {}
    exec(compile(source, "<candidate>", "exec", dont_inherit=True), space)
    return space["f"](1)


@pytest.mark.parametrize("source", FAILING.values(), ids=FAILING)
def test_what_python_would_refuse_of_an_annotation_is_not_vetted(source):
    with pytest.raises((AttributeError, ImportError, NameError, SyntaxError, TypeError)):
        run(source)
    assert vetted(source.encode()) is None


FINE = {
    "types of typing": "from typing import Dict, List, Optional, Tuple, Union\n"
    "def f(n: Optional[int], m: Dict[str, List[float]] = None, k: Union[int, None] = 1) -> Tuple[int, ...]: return 1",
    "arrays": "import numpy as np\ndef f(n: np.ndarray, m: list[np.float64] = None) -> np.ndarray: return 1",
}


@pytest.mark.parametrize("source", FINE.values(), ids=FINE)
def test_usual_annotations_are_vetted(source):
    assert run(source) == 1
    assert vetted(source.encode()) is not None
